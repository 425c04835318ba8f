"""The identity of this process as a rank, and the location of its files.

Another process cannot read the current environment of the rank. So the identity contains the places where torch writes
the flight recorder of this process when a collective times out:

    variable                          default (followed by the rank)                   torch
    TORCH_FR_DUMP_TEMP_FILE           $XDG_CACHE_HOME/torch/comm_lib_trace_rank_       since 2.9
    TORCH_NCCL_DEBUG_INFO_TEMP_FILE   $HOME/.cache/torch/nccl_trace_rank_              2.8
                                      /tmp/nccl_trace_rank_                            before
    TORCHCOMM_FR_DUMP_TEMP_FILE       $HOME/.cache/torchcomm_fr_trace_                 torchcomms

Source: ``DebugInfoWriter::getWriter`` in torch/csrc/distributed/c10d (FlightRecorder.cpp, later FlightRecorderDetail).
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import time_ns

from telemetry.errors import UnreadableError
from telemetry.files.private_files import make_folder
from telemetry.process.child_process import BORN, birth_of
from telemetry.process.pid_namespace import NAMESPACE, namespace_of
from telemetry.record.layout import META_NAME, RANK_FOLDER_DEPTH
from telemetry.record.reader import RankReader
from telemetry.records import LOG_OFFSETS, ROLE, RankIdentity
from telemetry.settings import RecordingSettings, network_settings
from telemetry.topology import Topology

DUMP_PATHS = "flight_dumps"
"""Key in the identity's ``meta``: a JSON list of absolute paths."""
_FLIGHT_RECORDER = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Newer torch reads the second if the first is not set. Older torch reads only the second."""
_TORCHCOMMS = "TORCHCOMM_FR_DUMP_TEMP_FILE"
_DYNAMIC = {
    "TORCH_FR_DUMP_TEMP_FILE": "TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
    "TORCHCOMM_FR_DUMP_TEMP_FILE": "TORCHCOMM_FR_DUMP_DYNAMIC_FILE_NAME",
}
"""Variable of a path -> another variable. If that is set, the file's name is the path, without the rank."""


def rank_folder(spool: Path, run_id: str, attempt: int, rank: int) -> Path:
    """The folder of a rank's file."""
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
            NAMESPACE: namespace_of(),
            **dump_places(settings.rank - settings.replica_group.first_rank(settings.world_size)),
            **network_settings(),
            **({ROLE: settings.role} if settings.role else {}),
            **meta,
        },
    )


def after_before(folder: Path, identity: RankIdentity) -> RankIdentity:
    """``identity`` with the time at which this rank's folder was first recorded into. It starts after every earlier
    identity in the folder, also if the wall clock was set back since: the newest identity of a rank is valid."""
    opened_ns = started_ns = identity.started_ns
    with suppress(UnreadableError):
        before = RankReader(folder).identity()
        if (before.run_id, before.attempt, before.rank) == (identity.run_id, identity.attempt, identity.rank):
            opened_ns, started_ns = before.opened_ns, max(started_ns, before.started_ns + 1)
    return replace(identity, opened_ns=opened_ns, started_ns=started_ns)


def log_offsets() -> dict[str, str]:
    """An addition to ``meta``: current sizes of the files behind stdout and stderr, which may have earlier text."""
    try:
        return {LOG_OFFSETS: f"{os.fstat(1).st_size} {os.fstat(2).st_size}"}
    except OSError:
        return {}


def write_identity(folder: Path, identity: RankIdentity) -> None:
    """Write ``meta.json`` atomically."""
    fields = asdict(identity)
    del fields["uid"]  # known from the file system
    topology = identity.topology
    fields["topology"] = {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp, "mesh": str(topology)}
    with make_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
        opened.write(META_NAME, json.dumps(fields, indent=1).encode())


def dump_places(rank: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """An addition to the identity's ``meta``: the places of flight recorders. Never raises."""
    try:
        places = [os.path.abspath(place) for place in _places(rank, environment)]
    except (OSError, ValueError):  # the working directory is gone
        return {}
    return {DUMP_PATHS: json.dumps(list(dict.fromkeys(places)))}


def _places(rank: int, environment: Mapping[str, str]) -> Iterator[str]:
    home = environment.get("HOME") or "/tmp"
    cache = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    yield from tuple(_chosen(_FLIGHT_RECORDER, rank, environment)) or (
        f"{cache}/torch/comm_lib_trace_rank_{rank}",
        f"{home}/.cache/torch/comm_lib_trace_rank_{rank}",
        f"{home}/.cache/torch/nccl_trace_rank_{rank}",
        f"/tmp/nccl_trace_rank_{rank}",
    )
    yield from tuple(_chosen((_TORCHCOMMS,), rank, environment)) or (f"{home}/.cache/torchcomm_fr_trace_{rank}",)


def _chosen(names: tuple[str, ...], rank: int, environment: Mapping[str, str]) -> Iterator[str]:
    """The places that follow from variables that are set."""
    for name in names:
        if prefix := environment.get(name):
            yield f"{prefix}{rank}"
            if environment.get(_DYNAMIC.get(name, "")):
                yield prefix
