"""The records of a simulated run: operations slot by slot, checkpoints between steps, and the clocks of hosts.

add(stage, pp, occurrence, begin, end)      lanes [steps, dp, tp] of one pipeline rank, seconds from the step's begin
operations(zero_ns)                         stage -> arrays [steps, occurrences, ranks], nanoseconds

    step 0 |=== replay ===|                     step 1 |=== replay ===| snapshot |          step 2 |===
                           ~ 1 ms, all ranks ~                                    |-- write, in the background --|

The next snapshot of a rank waits until its write has ended, and all ranks wait for it.

Stamps are those of each host's own clock: started + time + time * drift + offset
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Bools, Int64s, Operations
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Conditions, Floats
from telemetry.group_names import peer_of_mask
from telemetry.stages import Stage
from telemetry.topology import Topology

NS_PER_S = 1e9
BETWEEN_STEPS_S = 1e-3
SNAPSHOT_DRAW, WRITE_DRAW, CLOCK_DRAW = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Begin and end of one slot in every lane: seconds from the step's begin."""

    stage: Stage
    pp: int
    occurrence: int
    begin_s: Floats
    end_s: Floats
    chunk: int = -1
    microbatch: int = -1
    peer_pp: int = -1
    """Pipeline rank of the other side of a transfer."""
    mask: int = 0
    """Axes of the mesh that a collective's group lies along; 0: not recorded."""
    cpu_s: Floats | None = None
    size_bytes: Int64s | None = None
    """In every lane, or the same for all. None: not recorded."""
    present: Bools | None = None
    """Lanes in which it took place; None: all."""


class Book:
    """All records of a simulated run."""

    def __init__(self, topology: Topology, num_steps: int) -> None:
        self._topology = topology
        self._num_steps = num_steps
        self._slots: dict[Stage, list[Written]] = defaultdict(list)

    def add(self, slot: Written) -> None:
        self._slots[slot.stage].append(slot)

    def operations(self, zero_ns: Int64s) -> dict[Stage, Operations]:
        """All operations, with the steps' begins at ``zero_ns``. Frees the records."""
        stages = sorted(self._slots)
        return {stage: self._of_stage(self._slots.pop(stage), zero_ns) for stage in stages}

    def _of_stage(self, slots: list[Written], zero_ns: Int64s) -> Operations:
        topology = self._topology
        num_occurrences = max(slot.occurrence for slot in slots) + 1
        grid = (self._num_steps, num_occurrences, topology.dp, topology.pp, topology.tp)
        columns = {
            name: np.full(grid, ABSENT, dtype=dtype)
            for name, dtype in (
                *(("start_ns", np.int64), ("duration_ns", np.int64), ("cpu_ns", np.int64)),
                *(("microbatch", np.int16), ("chunk", np.int16), ("peer", np.int32)),
            )
        }
        if any(slot.size_bytes is not None for slot in slots):
            columns["size_bytes"] = np.full(grid, ABSENT, dtype=np.int64)
        for slot in slots:
            self._put(columns, slot, zero_ns)
        return Operations(**{name: topology.by_rank(values) for name, values in columns.items()})

    def _put(self, columns: dict[str, npt.NDArray[np.signedinteger]], slot: Written, zero_ns: Int64s) -> None:
        where = (slice(None), slot.occurrence, slice(None), slot.pp, slice(None))
        begin, end = ns_of(slot.begin_s), ns_of(slot.end_s)
        of_transfer = self._topology.grid[None, :, slot.peer_pp, :] if slot.peer_pp >= 0 else ABSENT
        values: dict[str, npt.NDArray[np.int64] | int] = {
            "start_ns": zero_ns[:, None, None] + begin,
            "duration_ns": end - begin,
            "cpu_ns": ABSENT if slot.cpu_s is None else ns_of(slot.cpu_s),
            "microbatch": slot.microbatch,
            "chunk": slot.chunk,
            "peer": peer_of_mask(slot.mask) if slot.mask else of_transfer,
        }
        if "size_bytes" in columns:
            values["size_bytes"] = 0 if slot.size_bytes is None else slot.size_bytes
        for name, value in values.items():
            kept = columns[name][where]
            columns[name][where] = value if slot.present is None else np.where(slot.present, value, kept)


def ns_of(seconds: Floats) -> Int64s:
    """Whole nanoseconds."""
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def between_steps(plan: SimulatedRun, conditions: Conditions, draws: Draws, ended_s: Floats, book: Book) -> Int64s:
    """Begin of each step, nanoseconds from the run's begin: [steps]. Adds ``step`` spans and checkpoints to ``book``.

    ``ended_s``: end of each rank's operations in a step, seconds from the step's begin, [steps, ranks].
    """
    is_checkpoint = _checkpoints(plan)
    snapshot_s = plan.seconds(Stage.CHECKPOINT_SNAPSHOT) * _scatter(plan, draws, SNAPSHOT_DRAW)
    write_s = plan.seconds(Stage.CHECKPOINT_WRITE) * _scatter(plan, draws, WRITE_DRAW) * conditions.write
    begin_s = np.zeros(plan.num_steps)
    snapped_s, all_ended_s = ended_s.copy(), ended_s.copy()
    written_until_s = np.zeros(plan.topology.world_size)
    for row in range(plan.num_steps):
        begin_s[row] = begin_s[row - 1] + all_ended_s[row - 1].max() + BETWEEN_STEPS_S if row else 0.0
        if is_checkpoint[row]:
            snapped_s[row] = np.maximum(ended_s[row], written_until_s - begin_s[row])
            all_ended_s[row] = snapped_s[row] + snapshot_s[row]
            written_until_s = begin_s[row] + all_ended_s[row] + write_s[row]
    _write(plan, book, Stage.STEP, np.zeros_like(ended_s), all_ended_s)
    if is_checkpoint.any():
        _write(plan, book, Stage.CHECKPOINT_SNAPSHOT, snapped_s, all_ended_s, is_checkpoint)
        _write(plan, book, Stage.CHECKPOINT_WRITE, all_ended_s, all_ended_s + write_s, is_checkpoint)
    return np.rint(begin_s * NS_PER_S).astype(np.int64)


def _checkpoints(plan: SimulatedRun) -> Bools:
    """Which steps end with a checkpoint, [steps]."""
    if not plan.checkpoint_every:
        return np.zeros(plan.num_steps, dtype=bool)
    return np.asarray((plan.scene.steps + 1) % plan.checkpoint_every == 0)


def _scatter(plan: SimulatedRun, draws: Draws, number: int) -> Floats:
    spread = plan.noise.gather_spread
    return np.exp(draws.of(number).normal(0.0, spread, (plan.num_steps, plan.topology.world_size)))


def _write(
    plan: SimulatedRun,
    book: Book,
    stage: Stage,
    begin_s: Floats,
    end_s: Floats,
    in_step: Bools | None = None,
) -> None:
    """Add one span for each step and rank. ``in_step``: only in these steps."""
    topology = plan.topology
    begins, ends = topology.arranged(begin_s), topology.arranged(end_s)
    for pp in range(topology.pp):
        begin, end = begins[:, :, pp], ends[:, :, pp]
        present = None if in_step is None else np.broadcast_to(in_step[:, None, None], begin.shape)
        book.add(Written(stage=stage, pp=pp, occurrence=0, begin_s=begin, end_s=end, present=present))


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clock of every host."""

    hosts: tuple[str, ...]
    """Names of the hosts, ascending."""
    offset_ns: Int64s
    """Reading of each clock at the begin of the run, [hosts]."""
    rate: Floats
    """Drift of each clock, [hosts]."""

    def read(self, host: str, time_ns: Int64s) -> Int64s:
        """Readings of the clock of ``host`` at times since the run's begin."""
        index = self.hosts.index(host)
        return _read(time_ns, self.offset_ns[[index]], self.rate[[index]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Times of a run; nanoseconds from its begin, without clock errors."""

    begin_ns: Int64s
    """Begin of each step."""
    end_ns: int
    """End of the last step."""
    met_ns: Int64s
    """When all members had begun the first transfer of a rank that a lost link delays, [steps, ranks]. The begin of the
    step if there is no such transfer."""
    clocks: Clocks


def clocks_of(plan: SimulatedRun, draws: Draws) -> Clocks:
    """The clocks of a run."""
    names = sorted(set(plan.hosts))
    offset, drift = draws.of(CLOCK_DRAW).uniform(-1.0, 1.0, (2, len(names)))
    return Clocks(
        hosts=tuple(names),
        offset_ns=np.rint(offset * plan.clock_offset_ms * 1e6).astype(np.int64) + plan.started_ns,
        rate=drift * plan.clock_drift_ppm * 1e-6,
    )


def read_by_hosts(
    operations: Mapping[Stage, Operations], plan: SimulatedRun, clocks: Clocks
) -> dict[Stage, Operations]:
    """Operations in nanoseconds from the run's begin, stamped by the clocks of their hosts."""
    host = np.searchsorted(clocks.hosts, plan.hosts)
    return {
        stage: _stamped(of_stage, clocks.offset_ns[host], clocks.rate[host]) for stage, of_stage in operations.items()
    }


def _stamped(one: Operations, offset_ns: Int64s, rate: Floats) -> Operations:
    """The operations with the readings of clocks. ``offset_ns`` and ``rate`` of the clocks: [ranks]."""
    start = _read(one.start_ns, offset_ns, rate)
    duration = one.duration_ns if not rate.any() else _read(one.end_ns, offset_ns, rate) - start
    return replace(
        one,
        start_ns=np.where(one.present, start, ABSENT),
        duration_ns=np.where(one.present, duration, ABSENT),
    )


def _read(time_ns: Int64s, offset_ns: Int64s, rate: Floats) -> Int64s:
    read = time_ns + offset_ns
    return np.asarray(read + np.rint(time_ns * rate).astype(np.int64) if rate.any() else read)
