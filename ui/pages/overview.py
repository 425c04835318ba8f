"""A run at a glance: the worst finding in a sentence, the numbers of the moment, the curves, all findings."""

from collections.abc import Iterator

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from ui.figures.series import Curve, curve_over_steps
from ui.pages.graphs import graph
from ui.pages.interface import Page, Region, region_id
from ui.pages.states import loading
from ui.pages.verdict import findings_list, headline
from ui.reads import Reads
from ui.records import MarkRow, RankState, RunFacts, Series
from ui.view_state import ViewState
from ui.wording import count, duration, stamp

RECENT = 20
MAX_MARKS_DRAWN = 12


def skeleton() -> Component:
    return dmc.Stack(
        [
            html.Div(loading(96), id=region_id("verdict")),
            html.Div(loading(72), id=region_id("numbers")),
            html.Div(loading(400), id=region_id("curves")),
            dmc.SimpleGrid(
                [html.Div(loading(160), id=region_id("findings")), html.Div(loading(160), id=region_id("events"))],
                cols={"base": 1, "lg": 2},
            ),
        ],
        gap="md",
    )


def draw_verdict(state: ViewState, reads: Reads) -> Component:
    """The worst finding."""
    facts = reads.facts(state)
    return headline(reads.report(facts.summary), facts)


def draw_numbers(state: ViewState, reads: Reads) -> Component:
    """Medians over the newest steps."""
    facts = reads.facts(state)
    series = reads.series(facts.summary)
    cards = [_card(name, value, note) for name, value, note in _numbers(facts, series, reads)]
    return dmc.SimpleGrid(cards, cols={"base": 2, "sm": 3, "lg": 6}, spacing="sm")


def draw_curves(state: ViewState, reads: Reads) -> Component:
    """Step time and what the trainer reported, by step."""
    facts = reads.facts(state)
    marks = reads.marks(facts.summary)[:MAX_MARKS_DRAWN]
    keep = f"{facts.summary.run_id}/{facts.summary.attempt}"
    panels = [
        _panel(title, graph(name, curve_over_steps(curve, marks, keep=keep), label=f"{title} by step"))
        for name, title, curve in _curves(facts, reads.series(facts.summary))
    ]
    return dmc.SimpleGrid(panels, cols={"base": 1, "md": 2}, spacing="md")


def draw_findings(state: ViewState, reads: Reads) -> Component:
    """All findings."""
    facts = reads.facts(state)
    return _panel("Findings", findings_list(reads.report(facts.summary), facts))


def draw_events(state: ViewState, reads: Reads) -> Component:
    """What was marked, and the ranks that are not well."""
    facts = reads.facts(state)
    parts = [_ranks(reads.ranks(facts.summary)), _marks(reads.marks(facts.summary))]
    return _panel("Ranks and marks", dmc.Stack(parts, gap="sm"))


def _numbers(facts: RunFacts, series: dict[str, Series], reads: Reads) -> Iterator[tuple[str, str, str]]:
    recent = f"median of {min(RECENT, len(facts.steps.step))} steps"
    yield "Step time", duration(float(np.median(facts.steps.duration_ns[-RECENT:]))), recent
    if "tokens-per-second" in series:
        yield "Tokens/s", f"{np.median(series['tokens-per-second'].value[-RECENT:]):,.0f}", recent
    if "mfu" in series:
        yield "MFU", f"{np.median(series['mfu'].value[-RECENT:]):.1%}", recent
    if "loss" in series:
        yield "Loss", f"{series['loss'].value[-1]:.3f}", f"{series['loss'].value[0]:.3f} at first"
    yield "Step", f"{int(facts.steps.step[-1]):,}", f"{len(facts.steps.step):,} stored"
    lost = sum(finding.seconds_lost for finding in reads.report(facts.summary).findings)
    yield "Time lost", f"{lost:.1f} s", "to the findings below"


def _curves(facts: RunFacts, series: dict[str, Series]) -> Iterator[tuple[str, str, Curve]]:
    steps = facts.steps
    yield "step-time", "Step time", Curve(name="step time", unit="s", step=steps.step, value=steps.duration_ns / 1e9)
    if "loss" in series:
        loss = series["loss"]
        yield "loss", "Loss", Curve(name="loss", unit="", step=loss.step, value=loss.value, from_zero=False)
    if "mfu" in series:
        mfu = series["mfu"]
        yield "mfu", "MFU", Curve(name="MFU", unit="%", step=mfu.step, value=mfu.value * 100, number=".2f")
    if "tokens-per-second" in series:
        tokens = series["tokens-per-second"]
        yield "tokens", "Tokens/s", Curve(name="tokens/s", unit="", step=tokens.step, value=tokens.value, number=",.0f")


def _card(name: str, value: str, note: str) -> Component:
    return dmc.Paper(
        [
            dmc.Text(name, size="xs", c="dimmed"),
            dmc.Text(value, className="number"),
            dmc.Text(note, size="xs", c="dimmed"),
        ],
        withBorder=True,
        p="sm",
    )


def _panel(title: str, body: Component) -> Component:
    return dmc.Paper([dmc.Title(title, order=2, className="panel-title"), body], withBorder=True, p="md")


def _ranks(ranks: list[RankState]) -> Component:
    if not ranks:
        return dmc.Text("No agent has reported on the ranks.", size="sm", c="dimmed")
    dead = [rank.rank for rank in ranks if not rank.alive and not rank.ended]
    dropped = sum(rank.dropped for rank in ranks)
    running, ended = sum(rank.alive and not rank.ended for rank in ranks), sum(rank.ended for rank in ranks)
    words = f"{count(len(ranks), 'rank')}: {running} running, {ended} ended in order, {len(dead)} gone"
    lines = [dmc.Text(words, size="sm")]
    if dead:
        named = ", ".join(map(str, dead[:16])) + (" …" if len(dead) > 16 else "")
        lines.append(dmc.Text(f"Gone without an orderly end: rank {named}", size="sm", c="red", fw=600))
    if dropped:
        lines.append(dmc.Text(f"{count(dropped, 'record')} dropped: views may miss spans", size="sm", c="orange"))
    return dmc.Stack(lines, gap=4)


def _marks(marks: list[MarkRow]) -> Component:
    if not marks:
        return dmc.Text("Nothing was marked.", size="sm", c="dimmed")
    rows = [
        dmc.TableTr(
            [dmc.TableTd(cell) for cell in (stamp(mark.at_ns), f"{mark.step}", f"{mark.rank}", mark.name, mark.text)]
        )
        for mark in marks
    ]
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in ("At", "Step", "Rank", "Mark", "Text")]))
    return dmc.TableScrollContainer(dmc.Table([head, dmc.TableTbody(rows)], className="small-table"), minWidth=420)


PAGE = Page(
    title="Overview",
    skeleton=skeleton,
    regions={
        "verdict": Region(draw=draw_verdict),
        "numbers": Region(draw=draw_numbers),
        "curves": Region(draw=draw_curves),
        "findings": Region(draw=draw_findings),
        "events": Region(draw=draw_events),
    },
)
