"""The verdict on a hang as text: one line, the next step, a picture of the grid, waits, stacks and logs.

            tp0 tp1
dp0 pp0      .   .        . waits   # behind   X dead   ? left nothing   - unknown
dp0 pp1      .   #
"""

from collections import defaultdict
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from diagnose.findings import Kind
from diagnose.hang.first_failure import CONSEQUENCES
from diagnose.hang.folding import fold_stacks, recorders_of
from diagnose.hang.verdict import HangVerdict, State
from diagnose.hang.waits import Wait
from diagnose.model.run_state import local_time
from diagnose.ranges import fold_ranks, name_some
from diagnose.report.as_text import line

SYMBOLS = {State.WAITING: ".", State.BEHIND: "#", State.DEAD: "X", State.MISSING: "?", State.UNKNOWN: "-"}
STYLES = {State.BEHIND: "bold red", State.DEAD: "bold red", State.MISSING: "yellow", State.WAITING: "dim"}
MAX_ROWS = 24
"""Rows of the picture, waits and stacks shown before the rest is counted."""
RANKS_A_ROW = 32
MAX_CONSEQUENCES = 3
INDENT = "    "


def hang_text(verdict: HangVerdict) -> RenderableType:
    """The verdict as a text for rich."""
    if verdict.kind is None:
        ask = [line(f"{INDENT}next: {verdict.next_step}")] if verdict.evidence.ranks else []
        return Group(line(verdict.headline, style="green"), *ask, *_sources(verdict), *_notes(verdict), *_run(verdict))
    style = "bold yellow" if verdict.kind is Kind.INSUFFICIENT_EVIDENCE else "bold red"
    return Group(
        line(verdict.headline, style=style),
        line(f"{INDENT}{verdict.kind}, confidence {verdict.confidence:.0%}{_since(verdict)}"),
        line(f"{INDENT}next: {verdict.next_step}"),
        *_sources(verdict),
        *_picture(verdict),
        *_waits(verdict),
        *_stacks(verdict),
        *_logs(verdict),
        *_recorders(verdict),
        *_notes(verdict),
        *_run(verdict),
    )


def _since(verdict: HangVerdict) -> str:
    evidence = verdict.evidence
    seconds = evidence.still_s
    steps = [one.step for one in evidence.ranks.values() if one.step >= 0]
    at_step = f", in step {max(steps)}" if steps else ""
    moved = evidence.tense("has made progress for {:.0f} s", "had made progress for {:.0f} s at the time of the check")
    return f"{at_step}, no rank {moved.format(seconds)}" if seconds else at_step


def _picture(verdict: HangVerdict) -> Iterator[Text]:
    rows = list(_rows(verdict))
    telling = [row for row in rows if any(state is not State.WAITING for _, state in row[1])] or rows
    shown = rows if len(rows) <= MAX_ROWS else telling[:MAX_ROWS]
    yield Text()
    topology = verdict.evidence.topology
    if topology is not None:
        yield line(INDENT + " " * 14 + " ".join(f"tp{index}".ljust(3) for index in range(topology.tp)), style="dim")
    for label, cells in shown:
        row = Text(f"{INDENT}{label:<14}")
        for _, state in cells:
            row.append(f" {SYMBOLS[state]}  " if topology is not None else SYMBOLS[state], STYLES.get(state, ""))
        yield row
    if len(shown) < len(rows):
        yield line(f"{INDENT}{len(rows) - len(shown)} rows more", style="dim")
    legend = "   ".join(f"{symbol} {state}" for state, symbol in SYMBOLS.items())
    yield line(f"{INDENT}{legend}", style="dim")


def _rows(verdict: HangVerdict) -> Iterator[tuple[str, list[tuple[int, State]]]]:
    """Label and cells: the tp ranks of each place in dp and pp, or ranks in order."""
    topology = verdict.evidence.topology
    states = list(verdict.states.items())
    if topology is not None:
        for ranks in topology.grid.reshape(-1, topology.tp).tolist():
            place = " ".join(part for part in topology.describe(ranks[0]).split() if not part.startswith("tp"))
            yield place, [(rank, verdict.states[rank]) for rank in ranks]
        return
    for first in range(0, len(states), RANKS_A_ROW):
        cells = states[first : first + RANKS_A_ROW]
        yield f"ranks {cells[0][0]}-{cells[-1][0]}", cells


def _waits(verdict: HangVerdict) -> Iterator[Text]:
    """Lines of waits. Equal waits share a line. Waits for an initiating rank come first."""
    together: dict[tuple[object, ...], list[Wait]] = defaultdict(list)
    for wait in verdict.waits.values():
        together[wait.on, wait.group, wait.op, wait.seq, wait.why].append(wait)
    if not together:
        return
    yield Text()
    initiating = set(verdict.initiating)
    lines = sorted(together.values(), key=lambda waits: _distance(waits, initiating))
    for waits in lines[:MAX_ROWS]:
        one, group = waits[0], verdict.evidence.groups[waits[0].group]
        yield line(
            f"{INDENT}{fold_ranks(wait.rank for wait in waits)} -> {fold_ranks(one.on)}   "
            f"{one.op} #{one.seq} of {group.name}: {one.why}"
        )
    if len(lines) > MAX_ROWS:
        yield line(f"{INDENT}{len(lines) - MAX_ROWS} lines more", style="dim")


def _distance(waits: list[Wait], initiating: set[int]) -> tuple[bool, bool, int]:
    """Sort key of waits: waits for an initiating rank first, collectives before transfers, many ranks before few."""
    return not initiating & set(waits[0].on), waits[0].op in ("send", "recv"), -len(waits)


def _stacks(verdict: HangVerdict) -> Iterator[Text]:
    initiating = set(verdict.initiating)
    stacks = sorted(fold_stacks(verdict.evidence), key=lambda stack: not initiating & set(stack[1]))
    for frames, ranks in stacks[:6]:
        yield Text()
        of_ranks = f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_ranks(ranks)}"
        yield line(f"{INDENT}stack of {of_ranks}", style="bold" if initiating & set(ranks) else "")
        for frame in frames[:12]:
            yield line(f"{INDENT}{INDENT}{frame}")


def _sources(verdict: HangVerdict) -> Iterator[Text]:
    """Lines of the kinds of evidence, each with the verdict from it alone, and lines of contradictions."""
    for source in verdict.evidence.sources:
        ranks = f"{'rank' if len(source.ranks) == 1 else 'ranks'} {name_some(source.ranks)}"
        yield line(
            f"{INDENT}evidence: {source.name} of {ranks}{f': {source.says}' if source.says else ''}", style="dim"
        )
    contradictions = verdict.evidence.contradictions
    for contradiction in contradictions[:MAX_ROWS]:
        yield line(f"{INDENT}contradiction: {contradiction.text}", style="yellow")
    if len(contradictions) > MAX_ROWS:
        yield line(f"{INDENT}{len(contradictions) - MAX_ROWS} contradictions more", style="yellow")


def _recorders(verdict: HangVerdict) -> Iterator[Text]:
    recorders = recorders_of(verdict.evidence)
    if recorders:
        yield Text()
        yield line(f"{INDENT}flight recorder: {'; '.join(recorders)}", style="dim")


def _logs(verdict: HangVerdict) -> Iterator[Text]:
    """Known faults in the logs, in order of time. Of the faults that a lost peer causes, only ``MAX_CONSEQUENCES``."""
    faults = [
        (found.at_ns, rank, found)
        for rank, one in verdict.evidence.ranks.items()
        for found in one.log
        if found.fault or rank in verdict.initiating
    ]
    if faults:
        yield Text()
    faults.sort(key=lambda fault: (fault[2].fault in CONSEQUENCES, *fault[:2]))
    own = sum(found.fault not in CONSEQUENCES or rank in verdict.initiating for _, rank, found in faults)
    for _, rank, found in sorted(faults[: min(own + MAX_CONSEQUENCES, MAX_ROWS)], key=lambda fault: fault[:2]):
        yield line(f"{INDENT}log of rank {rank}: {f'[{found.fault}] ' if found.fault else ''}{found.text}")


def _run(verdict: HangVerdict) -> Iterator[Text]:
    """A line with the name of the run. No line if it is not known: dumps do not have it."""
    if run_id := verdict.evidence.run_id:
        ended_ns = verdict.evidence.ended_ns
        ended = f", ended {local_time(ended_ns)}" if ended_ns else ""
        yield line(f"run {run_id}, attempt {verdict.evidence.attempt}{ended}", style="dim")


def _notes(verdict: HangVerdict) -> Iterator[Text]:
    missing = verdict.evidence.missing
    if missing:
        ranks = "rank" if len(missing) == 1 else "ranks"
        yield line(f"{INDENT}{ranks} {fold_ranks(missing)} left no records", style="yellow")
    notes = verdict.evidence.notes
    for note in notes[:MAX_ROWS]:
        yield line(f"{INDENT}{note}", style="dim")
    if len(notes) > MAX_ROWS:
        yield line(f"{INDENT}{len(notes) - MAX_ROWS} notes more", style="dim")
