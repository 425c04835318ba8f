"""The verdict on a stored attempt: the one function that commands, alerts and pages call.

Whether a job made progress after evidence of a stall was taken. Until it does, the evidence counts.

    step 39 |  step 40: stall   x                  the ranks died: the evidence counts
            |    evidence                          (ranks that unwind write records, and complete no step)

    step 39 |  step 40: stall        | step 41     a step completed: the stall is over
            |    evidence

Progress is a step that a rank completes after the stall began. Records, an end in good order or the start of another
step are not: a rank that times out, is interrupted by Ctrl-C or catches the error can produce them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from diagnose.hang.deaths import STILL_NS
from diagnose.hang.evidence import NS_PER_S, HangEvidence, Process, RankEvidence
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.judge import judge
from diagnose.hang.network import stored_network
from diagnose.hang.verdict import HangVerdict
from diagnose.settings import DetectorSettings
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Evidence, Heartbeats, LastSteps
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


RECORDER = "flight-recorder"
ON_DEVICE = '"device": "cuda"'
"""Flight recorders are large. They are read where state pages cannot know how far a device is, or name no cause."""
ONE_STALL_NS = 120_000_000_000
"""Evidence of one stall is taken within that time; agents take it again every half minute."""


def stored_verdict(reader: Reader, run_id: str, attempt: int) -> HangVerdict | None:
    """Who holds an attempt up, or held it up until it ended. None: no stall, or a step completed after the stall.

    Raises:
        UnreachableError: the store does not answer.
        UnreadableError: nothing of what is stored can be read.
    """
    bodies = _bodies(reader, run_id, attempt, ("state", "stack", "log"))
    needed = not any(body.kind == "state" for body in bodies) or any(ON_DEVICE in body.text for body in bodies)
    recorders = _bodies(reader, run_id, attempt, (RECORDER,)) if needed else []
    verdict = _verdict(reader, run_id, attempt, [*bodies, *recorders])
    if needed or verdict is None or verdict.kind is not None:
        return verdict
    # DDP waits for a future inside backward: the state page of a rank that waits then shows compute.
    recorders = _bodies(reader, run_id, attempt, (RECORDER,))
    return _verdict(reader, run_id, attempt, [*bodies, *recorders]) if recorders else verdict


def _verdict(reader: Reader, run_id: str, attempt: int, bodies: list[Body]) -> HangVerdict | None:
    if not bodies:
        return None
    evidence = _without_older_stalls(evidence_from_bodies(bodies, run_id, attempt))
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt)).to_pylist()
    if made_progress(evidence, {row["rank"]: row for row in beats}, _last_steps(reader, run_id, attempt)):
        return None
    network = stored_network(reader, run_id, attempt, beats, DetectorSettings.from_environment())
    return judge(replace(evidence, network=network, **_end(beats)))


def _end(beats: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether the job has ended, and when: fields of the evidence. ``beats``: rows of ``Heartbeats``."""
    if not beats or any(row["alive"] and not row["ended"] for row in beats):
        return {}
    return {"has_ended": True, "ended_ns": max(row["at_ns"] for row in beats)}


def _bodies(reader: Reader, run_id: str, attempt: int, kinds: tuple[str, ...]) -> list[Body]:
    rows = reader.read(Evidence(run_id=run_id, attempt=attempt, kinds=kinds)).to_pylist()
    return [Body(rank=row["rank"], kind=row["kind"], text=row["body"]) for row in rows if row["body"]]


def _last_steps(reader: Reader, run_id: str, attempt: int) -> dict[int, LastStep]:
    rows = reader.read(LastSteps(run_id=run_id, attempt=attempt)).to_pylist()
    return {row["rank"]: LastStep(step=row["step"], end_ns=row["end_ns"]) for row in rows}


def _without_older_stalls(evidence: HangEvidence) -> HangEvidence:
    newest_ns = max((one.taken_ns for one in evidence.ranks.values()), default=0)
    ranks = {rank: one for rank, one in evidence.ranks.items() if newest_ns - one.taken_ns < ONE_STALL_NS}
    return replace(evidence, ranks=ranks)
