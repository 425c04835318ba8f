"""The functions that a training script calls. :mod:`rankscope` and :mod:`telemetry` export them.

start()  environment -> names and mesh -> recording (``recording.py``) -> the host's agent
         start_attached() does the same for a process whose code does not call start()
stop()   the recording is ended and sealed
"""

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from telemetry.errors import UsageError
from telemetry.printable import printable
from telemetry.record.agent_process import claims_agent
from telemetry.record.clocks.drain import Device, device_name
from telemetry.record.mesh_learning import MeshLearner, given_topology
from telemetry.record.rank_identity import identity_of, rank_folder
from telemetry.record.recording import RECORDER, Session, SessionStats, call_all, warn
from telemetry.record.worker_server import keep_flight_recorder
from telemetry.run_names import NAME_HINT, usable_run_name
from telemetry.settings import RecordingSettings, check_default_spool
from telemetry.stages import STAGE_BY_LABEL, Stage, StageClass, Stream
from telemetry.topology import Topology

span = RECORDER.span
"""``span(stage, microbatch=-1, chunk=-1, size_bytes=0, peer=-1)``: a context manager that records a stage. ``stage`` is
a ``Stage`` or its label."""
step = RECORDER.step
"""``step(number)``: a context manager that records a step. Everything that is recorded from now on belongs to this
step. If an exception interrupts the step, it is not recorded. The mark ``step-interrupted`` is recorded instead."""
mark = RECORDER.mark
"""``mark(name, text="")``: record an event that happened now."""
sample = RECORDER.sample
"""``sample(metric, value, step=None)``: record a number, of the current step or of the earlier step ``step``."""
record_span = RECORDER.record_span
"""``record_span(stage, start_ns, duration_ns, *, microbatch, chunk, size_bytes, peer, op_seq, cpu_ns, issue_ns,
clock)``: record a span that has ended. Times are ``time.monotonic_ns``. It may be called on any thread."""

__all__ = [
    "RECORDER",
    "STAGE_BY_LABEL",
    "Session",
    "SessionStats",
    "Stage",
    "StageClass",
    "Stream",
    "Topology",
    "before_start",
    "current_session",
    "mark",
    "record_span",
    "sample",
    "see_group",
    "span",
    "start",
    "start_attached",
    "step",
    "stop",
]

_session = Session()
_before_start: list[Callable[[], None]] = []
_learner: MeshLearner | None = None


def start(
    run: str | None = None,
    *,
    topology: Topology | Any | None = None,
    rank: int | None = None,
    local_rank: int | None = None,
    host: str | None = None,
    attempt: int | None = None,
    spool: Path | str | None = None,
    collector: str | None = None,
    agent: bool = True,
    device: Device = "auto",
    role: str | None = None,
    meta: dict[str, str] | None = None,
) -> Session:
    """Record this process as one rank of a run.

    Missing arguments come from the environment: the variables of torchrun and of ``telemetry.settings``. This function
    never raises. If recording cannot start, one line on stderr gives the reason, and training continues.

    Args:
        run: name of the run. An invalid name is replaced by the nearest valid one (``telemetry/run_names.py``).
        topology: a ``Topology``, or torch's DeviceMesh. Without it, and without RANKSCOPE_MESH, the mesh is learned
            from the names of the process groups. Until then all ranks count as data parallel.
        rank: number of this rank in the whole job. Without it, ranks of replica groups are numbered over all groups
            (``telemetry/replica_groups.py``), and ``topology`` may be the mesh of one group.
        spool: folder of rank files.
        collector: URL of the collector. The first rank of each host then starts the agent of the host.
        agent: whether this rank may start the agent.
        device: clock of steps, compute and communication. ``auto``: the CUDA device that this process uses, otherwise
            the host. ``cuda``: the same, but recording does not start if there is no CUDA device. ``cpu``: the host.
            No value initialises CUDA or creates a context on an unused device.
        role: what this rank does in a job with several programs, such as ``actor`` or ``rollout``. Ranks are compared
            within a role. ``rank`` and ``topology`` then count the ranks of all programs.
        meta: other facts to store with the rank, such as the name of the model.
    """
    given: dict[str, Any] = {
        "run_id": run, "rank": rank, "local_rank": local_rank, "host": host, "attempt": attempt, "spool": spool,
        "collector": collector, "role": role,
    }  # fmt: skip
    if _session.recording and not _session.attached:
        warn("rankscope.start() was called twice; the first session continues")
        return _session
    if _session.recording:
        stop()  # the user's own session replaces one that was started without code
    return _start(
        given, topology=topology, device=device, meta=meta or {}, starts_agent=agent, numbers_groups=rank is None
    )


def start_attached(
    *,
    run: str | None,
    rank: int,
    local_rank: int,
    world_size: int,
    role: str | None = None,
    starts_agent: bool | None,
    meta: dict[str, str],
) -> Session:
    """Record this process as one rank of a run, without a call of the user: a later :func:`start` replaces the session.

    If ``starts_agent`` is None, the first rank of the host that asks for it starts the agent. Never raises.
    """
    given = {
        "run_id": run,
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "role": role,
        "attempt": None,
    }
    session = _start(given, topology=None, device="auto", meta=meta, starts_agent=starts_agent, numbers_groups=True)
    session.attached = session.recording
    return session


def _start(
    given: dict[str, Any],
    *,
    topology: Topology | Any | None,
    device: Device,
    meta: dict[str, str],
    starts_agent: bool | None,
    numbers_groups: bool,
) -> Session:
    global _session
    try:
        settings = RecordingSettings.from_environment()
        if settings.disabled:
            return _session
        keep_flight_recorder()
        settings = settings.overridden(**given)
        settings = settings.of_all_groups(given["attempt"]) if numbers_groups else settings.of_no_group()
        settings = _with_usable_name(settings)
        mesh = given_topology(topology, settings)
        call_all(_before_start)
        known = mesh or _learned_before(settings)
        _session = _begin(settings, known or _all_data_parallel(settings), device, meta)
        _session.given_topology = mesh is not None
        _session.relabel_groups()
        _session.knows_mesh = _session.knows_mesh or known is not None
        if settings.collector and _is_agents_rank(settings, starts_agent):
            _session.keep_agent(settings, settings.collector)
    except Exception as error:
        RECORDER.detach()
        _session = Session()
        warn(f"not recording: {error}")
    return _session


def _is_agents_rank(settings: RecordingSettings, starts_agent: bool | None) -> bool:
    """Whether this rank starts the agent of its host."""
    if starts_agent is not None and settings.replica_group.count == 1:
        return starts_agent and settings.local_rank == 0
    if starts_agent is False:
        return False
    try:
        return claims_agent(settings)
    except OSError as error:
        warn(f"the agent did not start: {error}")
        return False


def stop() -> None:
    """End the session, if there is one. Never raises."""
    global _learner
    _learner = None
    try:
        _session.end()
    except Exception as error:
        RECORDER.detach()
        warn(f"recording did not end cleanly: {error}")


def before_start(announce: Callable[[], None]) -> None:
    """Register ``announce`` to be called before a session starts; it may call :func:`see_group`. Never raises."""
    _before_start.append(announce)


def see_group(description: str, ranks: Sequence[int], world_size: int) -> None:
    """Note a process group of this rank, by its description, its ranks and the number of all ranks, as torch counts
    them; also before ``start``. Once the groups define the mesh, the session learns it. Never raises."""
    global _learner
    try:
        if _learner is None or _learner.world_size != world_size:
            _learner = MeshLearner(world_size)
        topology = _learner.add(description, ranks)
        if topology is not None:
            _session.learn(_session.replica_group.of_all(topology))
    except Exception as error:
        warn(f"cannot read the mesh from process group '{printable(description)}': {error!r}")


def _all_data_parallel(settings: RecordingSettings) -> Topology:
    group = settings.replica_group
    return group.of_all(Topology(dp=settings.world_size // group.count))


def _learned_before(settings: RecordingSettings) -> Topology | None:
    """The mesh from groups that were made before ``start``; None if they do not define it."""
    group = settings.replica_group
    if _learner is None or _learner.topology is None or _learner.world_size * group.count != settings.world_size:
        return None
    return group.of_all(_learner.topology)


def current_session() -> Session:
    """The session of this process. Before ``start`` it does not record."""
    return _session


def _begin(settings: RecordingSettings, topology: Topology, device: Device, meta: dict[str, str]) -> Session:
    if not 0 <= settings.rank < topology.world_size:
        raise UsageError(
            f"rank {settings.rank} is not in {topology}",
            hint="give the topology of the whole job: rankscope.start(topology=Topology(dp=..., pp=..., tp=...))",
        )
    identity = identity_of(settings, topology, device_name(device), meta)
    check_default_spool(settings.spool)
    session = Session(replica_group=settings.replica_group)
    folder = rank_folder(settings.spool, settings.run_id, settings.attempt, settings.rank)
    session.begin(identity, folder, device, settings.max_segments)
    return session


def _with_usable_name(settings: RecordingSettings) -> RecordingSettings:
    """``settings`` with the nearest valid name, so that a run with an invalid name is still recorded."""
    name = usable_run_name(settings.run_id)
    if name != settings.run_id:
        warn(f"'{printable(settings.run_id)}' is not a valid run name; recording as '{name}'\n\nhint: {NAME_HINT}")
    return replace(settings, run_id=name)


def _after_fork() -> None:
    """A forked child, such as a data loader's worker, must not write its parent's files."""
    global _session
    _session.abandon()
    _session = Session()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)
