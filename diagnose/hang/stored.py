"""The evidence of a stall, as agents stored it."""

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from telemetry.stores.queries import Evidence, Heartbeats
from telemetry.stores.reader import Reader


def load_stored(reader: Reader, run_id: str, attempt: int) -> HangEvidence | None:
    """The newest stall of an attempt; None when there was none, or the job went on after it.

    Raises:
        UnreachableError: the store does not answer.
        UnreadableError: nothing of what is stored can be read.
    """
    rows = [row for row in reader.read(Evidence(run_id=run_id, attempt=attempt)).to_pylist() if row["body"]]
    if not rows:
        return None
    bodies = (Body(rank=row["rank"], kind=row["kind"], text=row["body"], at_ns=row["at_ns"]) for row in rows)
    evidence = evidence_from_bodies(bodies, run_id, attempt)
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt)).to_pylist()
    return None if _went_on(evidence, {row["rank"]: row["step"] for row in beats}) else evidence


def _went_on(evidence: HangEvidence, step_of: dict[int, int]) -> bool:
    """A rank that has made a step since stood still no longer."""
    return any(step_of.get(rank, 0) > max(one.step, 0) for rank, one in evidence.ranks.items())
