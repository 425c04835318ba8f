"""Profiles on demand: a button that orders a profile, and links to the files of stored profiles.

The button is no callback of Dash, because a callback needs no more than the right to read. The browser sends the order
to the collector itself (``assets/profile.js``), and the collector checks the token.
"""

import json
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from diagnose.findings import Finding
from diagnose.model.run_state import RunState
from diagnose.profiles import StoredProfile, choose_ranks, profiles_for
from diagnose.ranges import named_ranks
from telemetry.profiles import Phase
from ui.dashboard.data import Reads
from ui.dashboard.data.profiles import profiles_of
from ui.dashboard.pages.panels import panel, part, table
from ui.dashboard.records import RunFacts, RunSummary
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import clock, stamp

PATH = "profile"
"""The route to the file of a profile."""
MAX_LISTED = 32


def finding_profiles(finding: Finding, facts: RunFacts, reads: Reads) -> Component | None:
    """The button and the stored profiles of a finding that names ranks."""
    if not finding.ranks:
        return None
    choice = choose_ranks(finding.ranks, facts.topology, dict(enumerate(facts.roles)))
    button = order_button(choice.ranks, finding.kind.value, facts.summary, reads)
    return _row(button, profiles_for(finding, profiles_of(facts.summary, reads)), facts.summary)


def rank_profiles(rank: int, facts: RunFacts, reads: Reads) -> Component | None:
    """The button and the stored profiles of one rank."""
    stored = [profile for profile in profiles_of(facts.summary, reads) if profile.rank == rank]
    row = _row(order_button((rank,), "", facts.summary, reads), stored, facts.summary)
    return None if row is None else part("Profiles of this rank", row)


def _row(button: Component | None, stored: Iterable[StoredProfile], run: RunSummary) -> Component | None:
    links = [file_link(profile, run) for profile in stored if profile.phase is Phase.STORED][:8]
    parts = [*([button] if button else []), *links]
    return dmc.Group(parts, gap="md", className="profiles small") if parts else None


def order_button(ranks: Sequence[int], finding: str, run: RunSummary, reads: Reads) -> Component | None:
    """A button that orders a profile. None if this server takes no orders, or the run does not train."""
    if not reads.takes_orders or run.state is not RunState.LIVE:
        return None
    order = {"run_id": run.run_id, "attempt": run.attempt, "ranks": list(ranks), "finding": finding}
    button = html.Button(f"Profile {named_ranks(ranks)}", className="button small", **{"data-order": json.dumps(order)})
    return html.Span([button, html.Span("", className="order-answer small", role="status")], className="order")


def file_link(profile: StoredProfile, run: RunSummary) -> Component:
    """A link to the file of a stored profile."""
    fields = {"run": run.run_id, "attempt": run.attempt, "profile": profile.profile_id, "rank": profile.rank}
    text = f"profile of rank {profile.rank}, {_steps(profile)}, {clock(profile.requested_ns)}"
    return html.A(text, href=f"{PATH}?{urlencode(fields)}", download="")


def _steps(profile: StoredProfile) -> str:
    first_step, last_step = profile.steps_profiled
    if last_step < first_step:
        return "no step"
    return f"step {first_step:,}" if first_step == last_step else f"steps {first_step:,} to {last_step:,}"


def draw_profiles(state: ViewState, reads: Reads) -> Component | None:
    """All profiles of a run. None if there is none."""
    run = reads.newest(state)
    profiles = profiles_of(run, reads)
    if not profiles:
        return None
    rows = [
        (stamp(profile.requested_ns), str(profile.rank), _result(profile, run), profile.finding or "a person")
        for profile in profiles[:MAX_LISTED]
    ]
    note = "Open a file with ui.perfetto.dev. The file and the spans of its rank use the same clock."
    content = [table(("Requested", "Rank", "Result", "For"), rows, min_width_px=420), dmc.Text(note, size="sm")]
    return panel("Profiles, the newest first", dmc.Stack(content, gap="xs"))


def _result(profile: StoredProfile, run: RunSummary) -> Component | str:
    if profile.phase is Phase.STORED:
        return html.Span([file_link(profile, run), f", ended early: {profile.reason}" if profile.reason else ""])
    return f"{profile.phase}: {profile.reason}" if profile.reason else str(profile.phase)


def profile_freshness(state: ViewState, reads: Reads) -> list[object]:
    """A value that changes when a profile is requested, or changes."""
    return [[(profile.profile_id, profile.rank, profile.phase) for profile in profiles_of(reads.newest(state), reads)]]
