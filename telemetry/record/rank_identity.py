"""The identity of this process as a rank, and the location of its files."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import time_ns

from telemetry.errors import UnreadableError
from telemetry.process.parent_death import BORN, birth_of
from telemetry.record.dump_places import dump_places
from telemetry.record.reader import RankReader
from telemetry.records import LOG_OFFSETS, RankIdentity
from telemetry.settings import RecordingSettings, network_words
from telemetry.topology import Topology


def rank_folder(spool: Path, run_id: str, attempt: int, rank: int) -> Path:
    """Where a rank's file lies."""
    return spool / run_id / str(attempt) / f"rank-{rank:05d}"


def identity_of(settings: RecordingSettings, topology: Topology, device: str, meta: dict[str, str]) -> RankIdentity:
    """The identity of this process, which starts now. ``device``: ``cuda`` or ``cpu``."""
    return RankIdentity(
        run_id=settings.run_id,
        attempt=settings.attempt,
        rank=settings.rank,
        host=settings.host,
        local_rank=settings.local_rank,
        pid=os.getpid(),
        topology=topology,
        started_ns=time_ns(),
        meta={
            "device": device,
            BORN: birth_of(os.getpid()),
            **dump_places(settings.rank),
            **network_words(),
            **meta,
        },
    )


def after_before(folder: Path, identity: RankIdentity) -> RankIdentity:
    """``identity`` with when this rank's folder was first recorded into; it starts after who recorded here before, also
    where the wall clock was set back since: of a rank's identities the newest counts."""
    opened_ns = started_ns = identity.started_ns
    with suppress(UnreadableError):
        before = RankReader(folder).identity()
        if (before.run_id, before.attempt, before.rank) == (identity.run_id, identity.attempt, identity.rank):
            opened_ns, started_ns = before.opened_ns, max(started_ns, before.started_ns + 1)
    return replace(identity, opened_ns=opened_ns, started_ns=started_ns)


def log_offsets() -> dict[str, str]:
    """Where this process begins in the files it prints into: what stands before is of somebody else."""
    try:
        return {LOG_OFFSETS: f"{os.fstat(1).st_size} {os.fstat(2).st_size}"}
    except OSError:
        return {}
