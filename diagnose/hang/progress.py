"""Whether a job made progress after evidence of a stall was taken. Until it does, the evidence counts.

    step 39 |  step 40: stall   x                  the ranks died: the evidence counts
            |    evidence                          (ranks that unwind write records, and complete no step)

    step 39 |  step 40: stall        | step 41     a step completed: the stall is over
            |    evidence

Progress is a step that a rank completes after the stall began. Records, an end in good order or the start of another
step are not: a rank that times out, is interrupted by Ctrl-C or catches the error can produce them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.hang.deaths import STILL_NS
from diagnose.hang.evidence import NS_PER_S, HangEvidence, Process, RankEvidence
from telemetry.tables import ENDED_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStep:
    """How far a rank has completed its steps."""

    step: int
    """The highest."""
    end_ns: int
    """Wall clock at which the newest ended."""


def made_progress(
    evidence: HangEvidence, beats: Mapping[int, Mapping[str, Any]], last_steps: Mapping[int, LastStep]
) -> bool:
    """Whether the job did. ``beats``: rows of ``heartbeats`` by rank.

    Where ranks died, only they count: the others may go on for a moment.
    """
    dead = {
        rank: rank_evidence for rank, rank_evidence in evidence.ranks.items() if rank_evidence.process is Process.DEAD
    }
    counted = dead or evidence.ranks
    if _stalled_in_a_step(evidence):
        return any(
            _completed_a_step(rank_evidence, beats.get(rank), last_steps.get(rank))
            for rank, rank_evidence in counted.items()
        )
    return any(_moved(rank_evidence, beats[rank]) for rank, rank_evidence in counted.items() if rank in beats)


def _stalled_in_a_step(evidence: HangEvidence) -> bool:
    """Whether the evidence is of a stall in a step. Else it is of ranks that ended while the job moved, perhaps by
    Ctrl-C, or of a stall between steps."""
    ranks = evidence.ranks.values()
    all_lived = all(rank_evidence.process not in (Process.DEAD, Process.ENDED) for rank_evidence in ranks)
    is_stall = all_lived or evidence.still_s * NS_PER_S > STILL_NS
    return is_stall and any(rank_evidence.step_since_ns for rank_evidence in ranks)


def _completed_a_step(rank_evidence: RankEvidence, beat: Mapping[str, Any] | None, last: LastStep | None) -> bool:
    if beat is not None and beat["dropped"] and beat["step"] > rank_evidence.step:
        return True  # the span of a step may be among the lost records
    if last is None or last.end_ns <= (rank_evidence.step_since_ns or rank_evidence.taken_ns):
        return False
    return not _was_interrupted(rank_evidence, beat, last)


def _was_interrupted(rank_evidence: RankEvidence, beat: Mapping[str, Any] | None, last: LastStep) -> bool:
    """Older recorders wrote a span for a step that an error had left."""
    if beat is None or not last.step == beat["step"] == rank_evidence.step:
        return False
    return bool(beat["ended"] == ENDED_FAILED or not (beat["alive"] or beat["ended"]))


def _moved(rank_evidence: RankEvidence, beat: Mapping[str, Any]) -> bool:
    """Whether a rank recorded anything, or ended in good order, after the evidence was taken."""
    if beat["step"] > max(rank_evidence.step, 0):
        return True
    if beat["ended"] == ENDED_FAILED:  # spans that an error unwinds are recorded, too
        return False
    ended = beat["ended"] and rank_evidence.process is not Process.ENDED
    return bool(beat["recorded"] > rank_evidence.recorded or ended)
