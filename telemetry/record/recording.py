"""One recording of this process: its parts, from start to end.

begin    the rank's folder -> state page -> worker server -> rank file -> recorder
later    the device clock and the UUID of the GPU, once this process uses a device; the mesh, once it is learned
end      device spans in flight -> last counts -> sealed
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from threading import Lock
from time import monotonic_ns

from telemetry.printable import log
from telemetry.profiles import SUPPORTED
from telemetry.record import layout
from telemetry.record.agent_process import KeptAgent, spawn_agent
from telemetry.record.clocks.drain import Device, Drain, device_drain
from telemetry.record.clocks.interface import Anchor, measure_anchor
from telemetry.record.garbage_watch import GarbageWatch
from telemetry.record.profiling import StepProfiler
from telemetry.record.rank_file import RankFile, SegmentsAhead
from telemetry.record.rank_identity import after_before, log_offsets, write_identity
from telemetry.record.recorder import Recorder
from telemetry.record.state_page import StatePage
from telemetry.record.worker_server import forget_worker_server, start_worker_server, stop_worker_server
from telemetry.records import GPU_UUID, RankIdentity
from telemetry.replica_groups import ONE_GROUP, ReplicaGroup
from telemetry.settings import RecordingSettings
from telemetry.stages import Stage
from telemetry.topology import Topology

MESH_LEARNED = "mesh-learned"
"""Name of the mark of a topology that was learned while recording; its text is the mesh."""
RECORDER = Recorder()
"""The recorder of this process: its functions stay the same before, during and after a session."""

_before_end: list[Callable[[], None]] = []
_when_learned: list[Callable[[Topology], None]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStats:
    """What a session recorded, and its cost for the training thread."""

    records: int
    dropped: int
    span_cost_ns: int
    """Cost of one span on the host clock, measured as the session started."""
    own_cost_ns: int
    """``span_cost_ns`` times the records."""


@dataclass(kw_only=True)
class Session:
    """A recording. ``folder`` is None if it could not start or is switched off."""

    identity: RankIdentity | None = None
    folder: Path | None = None
    span_cost_ns: int = 0
    attached: bool = False
    """Whether the session was started without a call of the user."""
    given_topology: bool = True
    """Whether the user gave the topology. If so, it is not learned."""
    knows_mesh: bool = False
    """Whether the topology was given or learned. Otherwise all ranks count as data parallel until it is learned."""
    replica_group: ReplicaGroup = ONE_GROUP
    _segments: SegmentsAhead | None = None
    _page: StatePage | None = None
    _drain: Drain | None = None
    _watch: GarbageWatch | None = None
    _agent: KeptAgent | None = None
    _profiler: StepProfiler | None = None
    _last: SessionStats | None = None
    _rewriting: Lock = field(default_factory=Lock)

    @property
    def recording(self) -> bool:
        return self._segments is not None

    @property
    def first_rank(self) -> int:
        """The number in the whole job of the rank that torch numbers 0."""
        return 0 if self.identity is None else self.replica_group.first_rank(self.identity.topology.world_size)

    @property
    def mesh_is_final(self) -> bool:
        """Whether the topology can no longer change: it was given, or is known and the first step has begun.

        Spans name axes only then: the same bits would mean other axes of another mesh.
        """
        page = self._page
        return self.given_topology or (self.knows_mesh and page is not None and page.words[layout.WORD_STEP] >= 0)

    def stats(self) -> SessionStats:
        """Statistics now, or at the end of a stopped session."""
        if self._last is not None:
            return self._last
        records, dropped = (RECORDER.next_seq(), RECORDER.dropped()) if self.recording else (0, 0)
        cost = self.span_cost_ns
        return SessionStats(records=records, dropped=dropped, span_cost_ns=cost, own_cost_ns=cost * records)

    def begin(self, identity: RankIdentity, folder: Path, device: Device, max_segments: int) -> None:
        """Claim the folder and record into it.

        Raises:
            UsageError: another process records as this rank, or the device cannot be timed.
            OSError: the folder cannot be written.
        """
        self.span_cost_ns = measure_span_cost(RECORDER)
        anchor = measure_anchor()
        page = StatePage(folder, anchor)
        try:
            rank_file = RankFile(folder, anchor=anchor, max_segments=max_segments)
            self._attach(identity, rank_file, page, device_drain(device, RECORDER, self.note_gpu), anchor)
        except BaseException:
            stop_worker_server()
            page.close()
            raise

    def _attach(
        self, identity: RankIdentity, rank_file: RankFile, page: StatePage, drain: Drain | None, anchor: Anchor
    ) -> None:
        folder = rank_file.folder
        identity = replace(
            after_before(folder, identity),
            meta={**identity.meta, **start_worker_server(folder), **log_offsets(), SUPPORTED: "1"},
        )
        write_identity(folder, identity)
        segments = SegmentsAhead(rank_file)
        RECORDER.attach(segments, rank_file.next_seq, page.words, None if drain is None else drain.clock)
        self.identity, self.folder = identity, folder
        self._segments, self._page = segments, page
        self._watch = GarbageWatch(RECORDER)
        self._watch.install()
        self._profiler = StepProfiler(folder, anchor, RECORDER)
        RECORDER.at_profile_word(self._profiler.see)
        self._drain = drain
        if drain is not None:
            drain.start()

    def end(self) -> None:
        """Flush and seal. Waits a bounded time for device spans in flight.

        Raises:
            OSError, UnreadableError: the folder is gone. The session has ended nevertheless.
        """
        segments, page = self._segments, self._page
        if segments is None or page is None:
            return
        call_all(_before_end)
        if self._profiler is not None:
            self._profiler.end()
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
            page.end(failed=is_failing())
            page.close()
            if self._agent is not None:
                self._agent.session_ended()

    def learn(self, topology: Topology) -> bool:
        """Record under ``topology`` from now on, which the rank learned while it records. Returns whether it is new.

        The identity is rewritten, the agent announces the rank again, and functions of :func:`when_learned` are called.
        A final topology does not change, and the world size does not either. Never raises.
        """
        before, page = self.identity, self._page
        if self.mesh_is_final or before is None or self.folder is None or page is None:
            return False
        if topology.world_size != before.topology.world_size:
            return False
        if topology == before.topology:
            self.knows_mesh = True
            return False
        try:
            self._rewrite(lambda identity: replace(identity, topology=topology))
        except Exception as error:
            warn(f"the learned mesh {topology} could not be saved: {error}")
            return False
        RECORDER.mark(MESH_LEARNED, str(topology))
        self.relabel_groups()
        self.knows_mesh = True  # last: spans name axes from here on
        return True

    def note_gpu(self, uuid: str) -> None:
        """Store the UUID of the GPU of this rank in the identity of the rank, unless the user gave one.

        Raises:
            OSError: the identity cannot be written.
        """
        self._rewrite(lambda identity: replace(identity, meta={GPU_UUID: uuid, **identity.meta}))

    def _rewrite(self, change: Callable[[RankIdentity], RankIdentity]) -> None:
        """Change the identity while it records. The agent announces the rank again. On any thread."""
        with self._rewriting:
            before, page = self.identity, self._page
            if before is None or self.folder is None or page is None or (changed := change(before)) == before:
                return
            # The identity of a rank with the latest start is valid.
            identity = replace(changed, started_ns=before.started_ns + 1)
            write_identity(self.folder, identity)
            self.identity = identity
            page.words[layout.WORD_IDENTITY] = identity.started_ns

    def relabel_groups(self) -> None:
        """Call all functions registered by :func:`when_learned` with the session's topology."""
        if self.identity is None:
            return
        for relabel in _when_learned:
            with suppress(Exception):
                relabel(self.identity.topology)

    def keep_agent(self, settings: RecordingSettings, collector: str) -> None:
        """Start the host's agent. If it fails, records stay in the spool for a later agent."""
        spawn = partial(
            spawn_agent, spool=settings.spool, run_id=settings.run_id, attempt=settings.attempt, collector=collector
        )
        try:
            self._agent = KeptAgent(spawn, warn)
        except OSError as error:
            warn(f"the agent did not start: {error}")

    def abandon(self) -> None:
        """Call in a forked child. Stops recording, and leaves the parent's files unchanged."""
        forget_worker_server()
        if self._profiler is not None:
            self._profiler.abandon()
        page, self._segments, self._page = self._page, None, None
        self._forget()
        RECORDER.forked()
        if page is not None:
            page.abandon()

    def _forget(self) -> None:
        stop_worker_server()
        if self._watch is not None:
            self._watch.remove()


def measure_span_cost(recorder: Recorder, *, batches: int = 9, spans: int = 50) -> int:
    """Nanoseconds that one span on the host clock takes now. Call it before the recording starts."""

    def batch_ns() -> int:
        began = monotonic_ns()
        for _ in range(spans):
            with recorder.span(Stage.DATA_LOAD):
                pass
        return monotonic_ns() - began

    return int(median(batch_ns() / spans for _ in range(batches)))


def before_end(finish: Callable[[], None]) -> None:
    """Register ``finish`` to be called when a session ends, while it still records. Errors are suppressed."""
    _before_end.append(finish)


def when_learned(relabel: Callable[[Topology], None]) -> None:
    """Register ``relabel`` to be called with the topology when a session starts, and when it learns a new topology.
    Errors are suppressed."""
    _when_learned.append(relabel)


def call_all(hooks: Sequence[Callable[[], None]]) -> None:
    """Call each of ``hooks``; their errors are suppressed."""
    for hook in hooks:
        with suppress(Exception):
            hook()


def is_failing() -> bool:
    """Whether an error ends this process or the recording block. Ctrl-C and a requested exit do not count."""
    error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    return isinstance(error, Exception)


def warn(message: str) -> None:
    """Print one line on stderr."""
    log(f"rankscope: {message}")
