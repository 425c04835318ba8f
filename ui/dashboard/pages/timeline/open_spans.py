"""Open spans: the stage that each rank is in, which has no record yet. A record is written when a stage ends.

    rank 4   |== F0 ==|  |/// tp-all-gather, for 34 min ///>      the axis ends shortly after the last recorded work
    rank 5   |== F0 ==|  |/// data-load, for 34 min ///////>
    step     |-------------------------------------------->      step_since_ns is the begin of the unfinished step

Two sources know the open stage of a rank: the evidence that agents collect in a stall, and the heartbeats.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from diagnose.hang.evidence import HangEvidence, RankEvidence
from diagnose.hang.verdict import HangVerdict
from diagnose.model.run_state import RunState
from telemetry.errors import UnreadableError
from telemetry.stages import STAGE_BY_LABEL, Stage
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.figures.hang import group_text
from ui.dashboard.records import RankState, RunFacts
from ui.dashboard.wording import NS_PER_S, long_duration

NO_OPERATION = (-1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpan:
    """The innermost open stage of one rank. Times are the wall clock of its host, in nanoseconds."""

    rank: int
    step: int
    stage: Stage
    """``STEP`` if the rank is in a step, and in no stage of it."""
    since_ns: int
    seen_ns: int
    """When the agent last saw it open."""
    step_since_ns: int = 0
    """Begin of the step. 0 if it is not known."""
    ended_ns: int = 0
    """When the process was lost. 0 if it exists."""
    operation: str = ""
    """``all_gather #41 of tp [4-5]``. Empty if the rank waits for no operation, or if it is not known."""
    place: tuple[int, int] = NO_OPERATION
    """Group and number of a collective: equal on all its members."""
    waits_for: tuple[int, ...] = ()

    @property
    def seconds(self) -> float:
        """How long the stage was open when it was last seen, or until the process was lost."""
        return max(0, (self.ended_ns or self.seen_ns) - self.since_ns) / NS_PER_S

    @property
    def lasts(self) -> str:
        """How long the stage was open, such as ``for 34 min``, or ``for 12 s, then the process was lost``."""
        seconds = self.seconds
        text = f"{seconds * 1e3:.0f} ms" if seconds < 1 else long_duration(seconds)
        return f"for {text}" + (", then the process was lost" if self.ended_ns else "")


def open_spans(facts: RunFacts, reads: Reads, ranks: Sequence[int]) -> tuple[OpenSpan, ...]:
    """The open stage of each of ``ranks`` in the newest unfinished step. Empty if none is known to be in one."""
    verdict = stall_of(facts, reads)
    if verdict is not None and verdict.kind is not None:
        return _in_newest_step([*_of_verdict(verdict, ranks)])
    if facts.summary.state is not RunState.LIVE or not len(facts.steps.step):
        return ()
    newest = int(facts.steps.step[-1])
    beats = reads.ranks(facts.summary, ranks)
    return _in_newest_step([span for span in _of_heartbeats(beats) if span.step > newest])


def stall_of(facts: RunFacts, reads: Reads) -> HangVerdict | None:
    """The verdict on a stall. None without a stall, and while the verdict of a large job is computed."""
    if facts.summary.state in (RunState.LIVE, RunState.SILENT):
        return None
    with suppress(StillWorking, UnreadableError):
        return reads.hang(facts)
    return None


def _in_newest_step(found: Sequence[OpenSpan]) -> tuple[OpenSpan, ...]:
    """The spans of the newest step and the step before it. Ranks of a stalled job can be one step apart, and all of
    them belong to the picture of the newest step."""
    newest = max((span.step for span in found), default=0)
    return tuple(span for span in found if span.step >= newest - 1)


def _of_verdict(verdict: HangVerdict, ranks: Sequence[int]) -> Iterator[OpenSpan]:
    evidence = verdict.evidence
    for known in (evidence.ranks[rank] for rank in ranks if rank in evidence.ranks):
        rank, stage = known.rank, STAGE_BY_LABEL.get(known.stage)
        if stage is None or known.step < 0 or not known.stage_since_ns:
            continue
        wait = verdict.waits.get(rank)
        place, operation = _operation(evidence, known)
        yield OpenSpan(
            rank=rank,
            step=known.step,
            stage=stage,
            since_ns=known.stage_since_ns,
            seen_ns=known.taken_ns or evidence.taken_ns,
            step_since_ns=known.step_since_ns,
            ended_ns=known.died_ns if known.is_dead else 0,
            operation=operation,
            place=place,
            waits_for=wait.on if wait is not None else (),
        )


def _operation(evidence: HangEvidence, known: RankEvidence) -> tuple[tuple[int, int], str]:
    """The operation that a rank is blocked in: its place, and its name."""
    if not known.pending or known.on_host:
        return NO_OPERATION, ""
    first = known.pending[0]
    text = f"{first.op} #{first.seq} of {group_text(evidence, first.group)}"
    return (NO_OPERATION if first.is_transfer else (first.group, first.seq)), text


def _of_heartbeats(ranks: Sequence[RankState]) -> Iterator[OpenSpan]:
    """Open spans from heartbeats. A rank writes its state page when a stage begins or ends, so the time of the last
    write is the begin of the open stage."""
    for known in ranks:
        if known.alive and known.stage is not None and known.beat_ns:
            yield OpenSpan(
                rank=known.rank, step=known.step, stage=known.stage, since_ns=known.beat_ns, seen_ns=known.at_ns
            )
