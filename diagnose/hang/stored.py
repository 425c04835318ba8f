"""The evidence of a stall, as agents stored it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diagnose.hang.evidence import HangEvidence, Process, RankEvidence
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.network import stored_network
from diagnose.settings import DetectorSettings
from telemetry.stores.queries import Evidence, Heartbeats
from telemetry.stores.reader import Reader
from telemetry.tables import ENDED_FAILED

ON_DEVICE = '"device": "cuda"'
"""Flight recorders are large: they are asked for where the live pages cannot know how far a device is."""
ONE_STALL_NS = 120_000_000_000
"""Evidence of one stall is taken within that time; agents take it again every half minute."""


def load_stored(reader: Reader, run_id: str, attempt: int) -> HangEvidence | None:
    """The newest stall of an attempt; None when there was none, or the job went on after it.

    Raises:
        UnreachableError: the store does not answer.
        UnreadableError: nothing of what is stored can be read.
    """
    bodies = _bodies(reader, run_id, attempt, ("state", "stack", "log"))
    if not any(body.kind == "state" for body in bodies) or any(ON_DEVICE in body.text for body in bodies):
        bodies += _bodies(reader, run_id, attempt, ("flight-recorder",))
    if not bodies:
        return None
    evidence = evidence_from_bodies(bodies, run_id, attempt)
    beats = reader.read(Heartbeats(run_id=run_id, attempt=attempt)).to_pylist()
    standing = _still_true(evidence, {row["rank"]: row for row in beats})
    if standing is None:
        return None
    settings = DetectorSettings.from_environment()
    return replace(standing, network=stored_network(reader, run_id, attempt, beats, settings))


def _bodies(reader: Reader, run_id: str, attempt: int, kinds: tuple[str, ...]) -> list[Body]:
    rows = reader.read(Evidence(run_id=run_id, attempt=attempt, kinds=kinds)).to_pylist()
    return [Body(rank=row["rank"], kind=row["kind"], text=row["body"]) for row in rows if row["body"]]


def _still_true(evidence: HangEvidence, beats: Mapping[int, Mapping[str, Any]]) -> HangEvidence | None:
    """Without what was left of an older stall; None where the ranks have gone on since, or ended in good order."""
    newest_ns = max((one.taken_ns for one in evidence.ranks.values()), default=0)
    ranks = {rank: one for rank, one in evidence.ranks.items() if newest_ns - one.taken_ns < ONE_STALL_NS}
    # The others may unwind over a death, in good order: only a new life of the dead takes it back.
    telling = {rank: one for rank, one in ranks.items() if one.process is Process.DEAD} or ranks
    if any(_went_on(one, beats[rank]) for rank, one in telling.items() if rank in beats):
        return None
    return replace(evidence, ranks=ranks)


def _went_on(one: RankEvidence, beat: Mapping[str, Any]) -> bool:
    """Whether a rank recorded anything, or ended in good order, after its evidence was taken."""
    if beat["step"] > max(one.step, 0):
        return True
    if beat["ended"] == ENDED_FAILED:  # spans that an error unwinds are recorded, too
        return False
    ended = beat["ended"] and one.process is not Process.ENDED
    return bool(beat["recorded"] > one.recorded or ended)
