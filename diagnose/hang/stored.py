"""The verdict on a stored attempt: the one function that commands, alerts and pages call."""

from dataclasses import replace
from typing import Any

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.judge import judge
from diagnose.hang.network import stored_network
from diagnose.hang.progress import LastStep, made_progress
from diagnose.hang.verdict import HangVerdict
from diagnose.settings import DetectorSettings
from telemetry.stores.queries import Evidence, Heartbeats, LastSteps
from telemetry.stores.reader import Reader

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
