"""What is set up and torn down while a process records, from ``start`` to ``stop``.

start()  environment -> the rank's folder -> state page -> worker server -> rank file -> recorder -> agent
later    the device clock, once this process uses a device
stop()   device spans in flight -> last counts -> sealed
"""

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from telemetry.errors import UsageError
from telemetry.printable import log, printable
from telemetry.record import layout
from telemetry.record.agent_process import KeptAgent, spawn_agent
from telemetry.record.clocks.cuda import Device, expects_device, open_device_clock
from telemetry.record.clocks.drain import Drain
from telemetry.record.clocks.host import measure_anchor
from telemetry.record.garbage import GarbageWatch
from telemetry.record.mesh_learning import MeshLearner, given_topology
from telemetry.record.rank_file import RankFile, write_identity
from telemetry.record.rank_identity import after_before, identity_of, log_offsets, rank_folder
from telemetry.record.recorder import make_recorder
from telemetry.record.segments_ahead import SegmentsAhead
from telemetry.record.session_stats import SessionStats, measure_span_cost
from telemetry.record.state_page import StatePage
from telemetry.record.worker_server import (
    forget_worker_server,
    keep_flight_recorder,
    start_worker_server,
    stop_worker_server,
)
from telemetry.records import RankIdentity
from telemetry.run_names import NAME_HINT, usable_run_name
from telemetry.settings import RecordingSettings, check_default_spool
from telemetry.topology import Topology

MESH_LEARNED = "mesh-learned"
"""Name of the mark of a topology that was learned while recording; its text is the mesh."""
RECORDER = make_recorder()
"""The recorder of this process: its functions stay the same before, during and after a session."""


@dataclass(kw_only=True)
class Session:
    """A recording, or (``folder`` None) the place of one that could not start or is switched off."""

    identity: RankIdentity | None = None
    folder: Path | None = None
    span_cost_ns: int = 0
    given_topology: bool = True
    """Whether the user gave the topology: then nothing is learned."""
    knows_mesh: bool = False
    """Whether the topology was given or learned. Otherwise all ranks count as data parallel until it is learned."""
    _segments: SegmentsAhead | None = None
    _page: StatePage | None = None
    _drain: Drain | None = None
    _watch: GarbageWatch | None = None
    _agent: KeptAgent | None = None
    _last: SessionStats | None = None

    @property
    def recording(self) -> bool:
        return self._segments is not None

    @property
    def mesh_is_final(self) -> bool:
        """Whether the topology stays: it was given, or it is known and the first step has begun. Spans name axes only
        then: the same bits would mean other axes of another mesh."""
        page = self._page
        return self.given_topology or (self.knows_mesh and page is not None and page.words[layout.WORD_STEP] >= 0)

    def stats(self) -> SessionStats:
        """As of now; of a session that was stopped, as of its end."""
        if self._last is not None:
            return self._last
        records = RECORDER.next_seq() if self.recording else 0
        dropped = RECORDER.dropped() if self.recording else 0
        cost = self.span_cost_ns
        return SessionStats(records=records, dropped=dropped, span_cost_ns=cost, own_cost_ns=cost * records)

    def begin(self, identity: RankIdentity, folder: Path, device: Device, max_segments: int) -> None:
        """Claim the folder and record into it.

        Raises:
            UsageError: another process records as this rank, or the device clock cannot be had.
            OSError: the folder cannot be written.
        """
        self.span_cost_ns = measure_span_cost(RECORDER)
        anchor = measure_anchor()
        page = StatePage(folder, anchor)
        try:
            rank_file = RankFile(folder, anchor=anchor, max_segments=max_segments)
            self._attach(identity, rank_file, page, _device_drain(device))
        except BaseException:
            stop_worker_server()
            page.close()
            raise

    def _attach(self, identity: RankIdentity, rank_file: RankFile, page: StatePage, drain: Drain | None) -> None:
        folder = rank_file.folder
        identity = replace(
            after_before(folder, identity),
            meta={**identity.meta, **start_worker_server(folder), **log_offsets()},
        )
        write_identity(folder, identity)
        segments = SegmentsAhead(rank_file)
        RECORDER.attach(segments, rank_file.next_seq, page.words, None if drain is None else drain.clock)
        self.identity, self.folder = identity, folder
        self._segments, self._page = segments, page
        self._watch = GarbageWatch(RECORDER)
        self._watch.install()
        self._drain = drain
        if drain is not None:
            drain.start()

    def end(self) -> None:
        """Flush and seal. Waits for device spans that are under way, a bounded time.

        Raises:
            OSError, UnreadableError: the folder is gone. The session has ended all the same.
        """
        segments, page = self._segments, self._page
        if segments is None or page is None:
            return
        _call_all(_before_end)
        given_up = self._drain.stop() if self._drain is not None else 0
        RECORDER.mark_dropped()
        if given_up:
            RECORDER.mark("device-spans-given-up", str(given_up))
        segments.stop()
        RECORDER.beat()
        stats = self.stats()
        self._last = replace(stats, dropped=stats.dropped + given_up)
        self._segments = self._page = None
        self._forget()
        RECORDER.detach()
        page.words[layout.WORD_DROPPED] = self._last.dropped
        try:
            segments.close(self._last.records)
        finally:
            page.end(failed=_is_failing())
            page.close()
            if self._agent is not None:
                self._agent.session_ended()

    def learn(self, topology: Topology) -> bool:
        """Record under ``topology`` from now on, which the rank has learned while it records; whether that is news.

        The identity is rewritten, the agent announces the rank again, and whoever called :func:`when_learned` hears of
        it. A topology that is final stays, and so does the world size. Never raises.
        """
        before, page = self.identity, self._page
        if self.mesh_is_final or before is None or self.folder is None or page is None:
            return False
        if topology.world_size != before.topology.world_size:
            return False
        if topology == before.topology:
            self.knows_mesh = True
            return False
        # Of a rank's identities the one that started last counts.
        identity = replace(before, topology=topology, started_ns=before.started_ns + 1)
        try:
            write_identity(self.folder, identity)
        except Exception as error:
            _warn(f"the learned mesh {topology} could not be saved: {error}")
            return False
        self.identity = identity
        page.words[layout.WORD_IDENTITY] = identity.started_ns
        RECORDER.mark(MESH_LEARNED, str(topology))
        self.relabel_groups()
        self.knows_mesh = True  # last: spans name axes from here on
        return True

    def relabel_groups(self) -> None:
        """Tell the session's topology to whoever called :func:`when_learned`."""
        if self.identity is None:
            return
        for relabel in _when_learned:
            with suppress(Exception):
                relabel(self.identity.topology)

    def keep_agent(self, settings: RecordingSettings, collector: str) -> None:
        """Start the host's agent. It may be missing: what is recorded stays in the spool for a later one."""
        spawn = partial(
            spawn_agent,
            spool=settings.spool,
            run_id=settings.run_id,
            attempt=settings.attempt,
            collector=collector,
        )
        try:
            self._agent = KeptAgent(spawn, _warn)
        except OSError as error:
            _warn(f"the agent did not start: {error}")

    def abandon(self) -> None:
        """In a forked child: record no more, and leave the parent's files alone."""
        forget_worker_server()
        page, self._segments, self._page = self._page, None, None
        self._forget()
        RECORDER.forked()
        if page is not None:
            page.abandon()

    def _forget(self) -> None:
        stop_worker_server()
        if self._watch is not None:
            self._watch.remove()


_session = Session()
_before_end: list[Callable[[], None]] = []
_before_start: list[Callable[[], None]] = []
_when_learned: list[Callable[[Topology], None]] = []
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
    meta: dict[str, str] | None = None,
) -> Session:
    """Record this process as one rank of a run; what is not given comes from the environment (torchrun's, and
    ``telemetry.settings``).

    ``device`` says what times steps, compute and communication. ``auto``: the CUDA device that this process works on,
    as soon as it does, also after a later ``set_device``; else the host. ``cuda``: likewise, and an error if there is
    no such device. ``cpu``: the host. CUDA is not initialised for this, and no unused device gets a context.

    ``topology`` may be torch's DeviceMesh. Without it, and without RANKSCOPE_MESH, the mesh is learned from the names
    of the job's process groups; until then all ranks count as data parallel.

    With a ``collector`` (its URL), the first rank of each host starts the host's agent, unless ``agent`` is False.
    Never raises: if it cannot record, it writes the reason to stderr once, and training continues. A run whose name
    cannot be used (``telemetry/run_names.py``) is recorded under the nearest name that can.
    """
    global _session
    if _session.recording:
        _warn("telemetry.start() was called twice; the first session continues")
        return _session
    try:
        settings = RecordingSettings.from_environment()
        if settings.disabled:
            return _session
        keep_flight_recorder()
        settings = settings.overridden(
            run_id=run, rank=rank, local_rank=local_rank, host=host, attempt=attempt, spool=spool, collector=collector
        )
        settings = _with_usable_name(settings)
        given = given_topology(topology, settings)
        _call_all(_before_start)
        known = given or _learned_before(settings.world_size)
        _session = _begin(settings, known or Topology(dp=settings.world_size), device, meta or {})
        _session.given_topology = given is not None
        _session.relabel_groups()
        _session.knows_mesh = _session.knows_mesh or known is not None
        if agent and settings.collector and settings.local_rank == 0:
            _session.keep_agent(settings, settings.collector)
    except Exception as error:
        RECORDER.detach()
        _session = Session()
        _warn(f"not recording: {error}")
    return _session


def stop() -> None:
    """End the session, if there is one. Never raises."""
    global _learner
    _learner = None
    try:
        _session.end()
    except Exception as error:
        RECORDER.detach()
        _warn(f"recording did not end cleanly: {error}")


def before_end(finish: Callable[[], None]) -> None:
    """Have ``finish`` called as a session ends, while it still records. Its errors are swallowed."""
    _before_end.append(finish)


def before_start(tell: Callable[[], None]) -> None:
    """Have ``tell`` called before a session starts: it may call :func:`see_group`. Its errors are swallowed."""
    _before_start.append(tell)


def when_learned(relabel: Callable[[Topology], None]) -> None:
    """Have ``relabel`` called with the session's topology as a session starts, and whenever it has learned another.
    Its errors are swallowed."""
    _when_learned.append(relabel)


def see_group(description: str, ranks: Sequence[int], world_size: int) -> None:
    """A process group that this rank belongs to, by its description and global ranks; also before ``start``. Once the
    groups tell the mesh, the session learns it. Never raises."""
    global _learner
    try:
        if _learner is None or _learner.world_size != world_size:
            _learner = MeshLearner(world_size)
        topology = _learner.add(description, ranks)
        if topology is not None:
            _session.learn(topology)
    except Exception as error:
        _warn(f"cannot read the mesh from process group '{printable(description)}': {error!r}")


def _learned_before(world_size: int) -> Topology | None:
    """The mesh as groups that were made before ``start`` show it; None where they do not."""
    return _learner.topology if _learner is not None and _learner.world_size == world_size else None


def _call_all(hooks: Sequence[Callable[[], None]]) -> None:
    for hook in hooks:
        with suppress(Exception):
            hook()


def current_session() -> Session:
    """The session of this process; one that does not record before ``start``."""
    return _session


def _begin(settings: RecordingSettings, topology: Topology, device: Device, meta: dict[str, str]) -> Session:
    if not 0 <= settings.rank < topology.world_size:
        raise UsageError(
            f"rank {settings.rank} is not in {topology}",
            hint="give the topology of the whole job: telemetry.start(topology=Topology(dp=..., pp=..., tp=...))",
        )
    identity = identity_of(settings, topology, _device_name(device), meta)
    check_default_spool(settings.spool)
    session = Session()
    folder = rank_folder(settings.spool, settings.run_id, settings.attempt, settings.rank)
    session.begin(identity, folder, device, settings.max_segments)
    return session


def _device_drain(device: Device) -> Drain | None:
    """The drain of the device's clock, which may come later; None where there will be none."""
    clock = open_device_clock(device)
    if clock is None and not expects_device(device):
        return None
    return Drain(clock, RECORDER, open_clock=partial(open_device_clock, device))


def _device_name(device: Device) -> str:
    """``cuda`` or ``cpu``: what the rank is expected to use."""
    return "cuda" if device == "cuda" or expects_device(device) else "cpu"


def _with_usable_name(settings: RecordingSettings) -> RecordingSettings:
    """With the nearest name that can be used: a wrong name must not cost the user the record of a run."""
    name = usable_run_name(settings.run_id)
    if name != settings.run_id:
        _warn(f"'{printable(settings.run_id)}' is not a valid run name; recording as '{name}'\n\nhint: {NAME_HINT}")
    return replace(settings, run_id=name)


def _is_failing() -> bool:
    """Whether an error ends this process, or the block that records: not Ctrl-C, and not an exit that was asked for."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    return isinstance(error, Exception)


def _warn(message: str) -> None:
    log(f"rankscope: {message}")


def _after_fork() -> None:
    """A forked child (a data loader's worker, say) is another process: its parent's files are not its own."""
    global _session
    _session.abandon()
    _session = Session()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(stop)
