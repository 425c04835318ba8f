"""The rank files of a job, alive or dead, as evidence of why it stands still. No agent and no collector are needed."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from diagnose.hang.evidence import HangEvidence, Process
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from diagnose.hang.network import spooled_network
from telemetry.errors import UnreadableError, UsageError
from telemetry.evidence.collect import collect_evidence
from telemetry.evidence.rank_state import LIVING, look_at
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.settings import spool_of
from telemetry.stages import Stage

LEAST_STILL_S, LEAST_STILL_SLOW_S = 10.0, 300.0
"""A living job in which something began more recently than that is not said to stand still."""
TAKE_THEIR_TIME = tuple(stage.label for stage in (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE, Stage.EVALUATION))


def evidence_from_spool(spool: Path, run_id: str | None = None, attempt: int | None = None) -> HangEvidence:
    """Evidence of a run under ``spool``, the newest where none is named: of ranks that live as they stand now, of
    others what they and their agent have left. No ranks at all where the job still moves.

    Raises:
        UsageError: no rank file there.
        UnreadableError: nothing that can be read.
    """
    run_id, attempt = _newest(spool, run_id, attempt)
    bodies = [Body(rank=one.rank, kind=one.kind, text=one.body) for one in collect_evidence(spool, run_id, attempt)]
    evidence = evidence_from_bodies(bodies, run_id, attempt)
    lives = _lives(spool, run_id, attempt)
    if lives and _moves(evidence):
        note = f"something began {evidence.still_s:.1f} s ago; look again, or --watch"
        return HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=attempt, notes=(note,))
    return replace(evidence, network=spooled_network(spool, run_id, attempt), has_ended=not lives)


def _newest(spool: Path, run_id: str | None, attempt: int | None) -> tuple[str, int]:
    """The attempt that began last."""
    began: list[tuple[int, str, int]] = []
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            identity = RankReader(folder).identity()
            began.append((identity.started_ns, identity.run_id, identity.attempt))
    if not began:
        raise UsageError(
            f"no rank file under {spool}",
            hint=f"name the folder that ranks write into: --spool DIR; here it is {spool_of()}",
        )
    return max(began)[1:]


def _lives(spool: Path, run_id: str, attempt: int) -> bool:
    """Whether any rank does. What an agent left of one that does not may say that it did."""
    for folder in find_rank_dirs(spool, run_id, attempt):
        with suppress(UnreadableError):
            reader = RankReader(folder)
            _, process = look_at(reader, reader.identity())
            if process in LIVING:
                return True
    return False


def _moves(evidence: HangEvidence) -> bool:
    """Without an agent that has learned the usual step, only a long standstill counts; a longer one where a rank does
    what takes its time."""
    if any(one.process is Process.DEAD for one in evidence.ranks.values()):
        return False
    slow = any(one.stage in TAKE_THEIR_TIME for one in evidence.ranks.values())
    return evidence.still_s < (LEAST_STILL_SLOW_S if slow else LEAST_STILL_S)
