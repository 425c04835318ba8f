"""A run with collectives, made from a seed: compute, late launches and slow transfers as a test sets them.

    dp0   forward | backward |---- grads-reduce-scatter ----|      all end together
    dp1   late .. forward | backward    |------------------|

Ranks of a dp replica arrive together (a pipeline with tensor groups couples them) unless a delay comes after
the pipeline. Every host has a clock of its own, off by up to an hour.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Operations
from diagnose.model.view import Basis, RunView, Work
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_view import BACKWARD_NS, FORWARD_NS, make_view

Floats = npt.NDArray[np.float64]
GRIDS = [Topology(dp=2, pp=2, tp=2), Topology(dp=8, pp=4, tp=2), Topology(dp=16), Topology(dp=4, pp=2)]
TRANSFER_NS = 12e6
PAIR_NS = 3e6
STEP_NS = 2 * (FORWARD_NS + BACKWARD_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Lateness in nanoseconds, [steps, ranks]."""

    before_compute: Floats | float = 0.0
    """The whole replica arrives late."""
    before_launch: Floats | float = 0.0
    """Only the rank itself arrives late."""
    gc: Floats | float = 0.0
    """Before compute, with a mark of garbage collection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowGroups:
    """Factors of transfer, [steps, ranks]: a collective takes the largest of its members'."""

    of_rank: Floats | float = 1.0
    of_edge: dict[tuple[int, int], float] = field(default_factory=dict)


def as_operations(duration_ns: Floats, start_ns: Floats, peer: npt.NDArray[np.int64] | None = None) -> Operations:
    """[steps, occurrences, ranks]; NaN: no operation."""
    present = ~np.isnan(duration_ns)
    absent = np.full(duration_ns.shape, ABSENT)
    return Operations(
        start_ns=np.where(present, start_ns, ABSENT).astype(np.int64),
        duration_ns=np.where(present, np.nan_to_num(duration_ns), ABSENT).astype(np.int64),
        cpu_ns=absent.astype(np.int64),
        microbatch=absent.astype(np.int16),
        chunk=absent.astype(np.int16),
        peer=absent.astype(np.int32) if peer is None else np.where(present, peer, ABSENT).astype(np.int32),
    )


def make_collective_view(
    topology: Topology,
    *,
    num_steps: int = 40,
    jitter: float = 0.03,
    launch_jitter_ns: float = 0.5e6,
    slow: dict[int, float] | None = None,
    heavy_stage: dict[int, float] | None = None,
    delays: Delays | None = None,
    slow_groups: SlowGroups | None = None,
    ranks_a_host: int = 4,
    seed: int = 0,
) -> RunView:
    """A span of backward compute holds the waiting for others of the replica, as in tensor-parallel collectives.

    ``jitter`` is that of work and of transfers, log-normal; ``launch_jitter_ns`` that of starts, exponential."""
    random = np.random.default_rng(seed)
    delays, slow_groups = delays or Delays(), slow_groups or SlowGroups()
    view = make_view(topology, num_steps=num_steps, jitter=jitter, slow=slow, heavy_stage=heavy_stage, seed=seed)
    shape = (num_steps, topology.world_size)
    hosts = [f"gpu-{rank // ranks_a_host:02d}" for rank in range(topology.world_size)]
    offset = random.uniform(-3.6e12, 3.6e12, len(set(hosts)))[np.unique(hosts, return_inverse=True)[1]]
    zero = 1.7e18 + np.arange(num_steps)[:, None] * 1e9 + offset
    before = np.broadcast_to(delays.before_compute, shape) + np.broadcast_to(delays.gc, shape)
    own = np.sum([work.ns for work in view.work.values()], axis=0) + before
    launch = random.exponential(launch_jitter_ns, shape) + np.broadcast_to(delays.before_launch, shape)
    done = zero + _of_replica(own, topology)
    arrival = _of_replica(own, topology) + launch
    factor = np.broadcast_to(slow_groups.of_rank, shape)
    scatter = _collective(arrival, factor, topology, TRANSFER_NS, jitter, random)
    gather_at = random.exponential(launch_jitter_ns, shape)
    gather = _collective(gather_at, factor, topology, TRANSFER_NS, jitter, random)
    forward_at = zero + before
    backward_at = forward_at + view.work[Stage.FORWARD_COMPUTE].ns
    operations = {
        Stage.PARAMS_ALL_GATHER: as_operations(gather[:, None], (zero - TRANSFER_NS + gather_at)[:, None]),
        Stage.FORWARD_COMPUTE: as_operations(view.work[Stage.FORWARD_COMPUTE].ns[:, None], forward_at[:, None]),
        Stage.BACKWARD_COMPUTE: as_operations((done - backward_at)[:, None], backward_at[:, None]),
        Stage.GRADS_REDUCE_SCATTER: as_operations(scatter[:, None], (zero + arrival)[:, None]),
        **_pairs(topology, zero, factor, slow_groups.of_edge, jitter, random),
    }
    if np.any(delays.gc):
        marks = np.where(np.broadcast_to(delays.gc, shape) > 0, np.broadcast_to(delays.gc, shape), np.nan)
        operations[Stage.GC] = as_operations(marks[:, None], zero[:, None])
    return replace(
        view,
        hosts=tuple(hosts),
        operations=operations,
        work={stage: Work(ns=one.ns, basis=Basis.SELF_TIME) for stage, one in view.work.items()},
    )


def _of_replica(own: Floats, topology: Topology) -> Floats:
    """When the replica of each rank has done its work: its slowest rank counts."""
    replicas = own.reshape(len(own), topology.dp, -1)
    return np.repeat(replicas.max(axis=2), replicas.shape[2], axis=1)


def _collective(
    arrival: Floats, factor: Floats, topology: Topology, typical_ns: float, jitter: float, random: np.random.Generator
) -> Floats:
    """Durations: until the last of the dp group has come, and the transfer."""
    grid = (len(arrival), topology.dp, topology.pp * topology.tp)
    transfer = typical_ns * np.exp(random.normal(0.0, jitter, (grid[0], 1, grid[2])))
    transfer = transfer * factor.reshape(grid).max(axis=1, keepdims=True)
    waits = arrival.reshape(grid).max(axis=1, keepdims=True) - arrival.reshape(grid)
    return (waits + transfer).reshape(arrival.shape)


def _pairs(
    topology: Topology,
    zero: Floats,
    factor: Floats,
    of_edge: dict[tuple[int, int], float],
    jitter: float,
    random: np.random.Generator,
) -> dict[Stage, Operations]:
    """Four transfers a step, edge and direction; the receiver waits for anything up to 20 ms."""
    pp = np.arange(topology.world_size) // topology.tp % topology.pp
    made: dict[Stage, Operations] = {}
    for send, recv, towards in (
        (Stage.FORWARD_SEND, Stage.FORWARD_RECV, 1),
        (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, -1),
    ):
        sender = np.flatnonzero((pp + towards >= 0) & (pp + towards < topology.pp))
        receiver = sender + towards * topology.tp
        if not len(sender):
            return {}
        times = [
            of_edge.get((min(pair), max(pair)), 1.0) for pair in zip(sender.tolist(), receiver.tolist(), strict=True)
        ]
        shape = (len(zero), 4, len(sender))
        transfer = PAIR_NS * np.exp(random.normal(0.0, jitter, shape)) * np.array(times)
        transfer = transfer * np.maximum(factor[:, sender], factor[:, receiver])[:, None]
        made[send] = _side(topology, zero, sender, receiver, transfer)
        made[recv] = _side(topology, zero, receiver, sender, transfer + random.uniform(0, 20e6, shape))
    return made


def _side(
    topology: Topology, zero: Floats, ranks: npt.NDArray[np.int64], peers: npt.NDArray[np.int64], ns: Floats
) -> Operations:
    duration = np.full((*ns.shape[:2], topology.world_size), np.nan)
    duration[..., ranks] = ns
    peer = np.full(topology.world_size, ABSENT)
    peer[ranks] = peers
    start = zero[:, None] + 110e6 + np.arange(ns.shape[1])[:, None] * 15e6
    return as_operations(duration, start, np.broadcast_to(peer, duration.shape))


def made_large_view(dp: int) -> RunView:
    """64 ranks in each of ``dp`` replicas, 20 steps, 2 occurrences of every stage."""
    topology = Topology(dp=dp, pp=8, tp=8)
    view = make_collective_view(topology, num_steps=20, ranks_a_host=8)

    def twofold(one: Operations) -> Operations:
        return one.changed(lambda values: np.repeat(values[:, :1], 2, axis=1))

    return replace(view, operations={stage: twofold(one) for stage, one in view.operations.items()})
