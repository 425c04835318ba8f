"""The picture: its data for the browser, and a key that identifies it."""

import hashlib
from dataclasses import replace

from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.counters import counter_curves
from ui.dashboard.pages.timeline.ideal import known_strip
from ui.dashboard.pages.timeline.row_order import ordered_ranks
from ui.dashboard.pages.timeline.selection import aligned, fit, selection, suspected
from ui.dashboard.pages.timeline.spans_buffer import Additions, spans_buffer
from ui.dashboard.pages.timeline.step_shares import gaps_by_rank
from ui.dashboard.view_state import ViewState


def spans_key(state: ViewState, reads: Reads) -> str:
    """A text that identifies the spans of a picture. It depends on their content only, so it stays the same for a
    completed step of a live run."""
    shown = selection(state, reads)
    one_clock, run = aligned(shown, reads), shown.facts.summary
    content = hashlib.blake2s(one_clock.note.encode(), digest_size=16)
    for column in (one_clock.spans.seq, one_clock.spans.start_ns, one_clock.spans.duration_ns):
        content.update(column.tobytes())
    content.update(repr([(span.rank, span.since_ns, span.lasts, span.waits_for) for span in shown.open_spans]).encode())
    counters = counter_curves(shown, state.timeline.counters, reads)
    for curve in counters.curves:
        content.update(curve.at_ns.tobytes() + curve.value.tobytes())
    ranks = ordered_ranks(state.timeline.order, shown, reads)
    if strip := known_strip(state, shown, reads):
        content.update(strip.operations.begin_ns.tobytes() + repr((strip.ideal_ns, strip.lost_ns)).encode())
    return "/".join(
        map(str, (run.run_id, run.attempt, shown.steps, ranks, state.timeline.counters, content.hexdigest()))
    )


def draw_spans(state: ViewState, reads: Reads, *, least_ns: int = 0) -> dict[str, object] | None:
    """The spans. ``least_ns``: the time axis is at least this long. None if there is no span."""
    shown = selection(state, reads)
    one_clock = aligned(shown, reads)
    if not len(one_clock.spans) and not shown.open_spans:
        return None
    facts = shown.facts
    ranks = ordered_ranks(state.timeline.order, shown, reads)
    names = {rank: f"{facts.place(rank)} · {facts.hosts[rank] or 'unknown'}" for rank in ranks}
    fitting = replace(one_clock, spans=fit(one_clock.spans).spans)
    counters = counter_curves(shown, state.timeline.counters, reads)
    additions = Additions(
        strip=known_strip(state, shown, reads), opened=shown.open_spans, counters=counters, least_ns=least_ns
    )
    gaps = gaps_by_rank(one_clock.spans)
    return spans_buffer(fitting, gaps, names, shown.steps.first, facts, additions)


def marked_ranks(state: ViewState, reads: Reads) -> tuple[int, ...]:
    """The ranks that block the job, and the suspects of the detectors. Empty until these are ready."""
    return suspected(reads.facts(state), reads)
