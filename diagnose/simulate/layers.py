"""Parameters that are gathered layer by layer inside a forward or backward, and the groups of ranks that do it.

Fully sharded data parallelism: each forward or backward consists of layers.

    prefetched   gathers   |G0|G1|  |G2|  |G3|            the gather of a layer runs beside the layer before it, and is
                 compute      |= 0 =|= 1 =|= 2 =|= 3 =|   waited for only if some member of the group is late

    exposed      gathers   |G0|     |G1|     |G2|         nothing runs beside a gather
                 compute      |= 0 =|  |= 1 =|  |= 2 =|

    backward     reduce           |R3|  |R2|  |R1|  |R0|  gradients of a layer, beside the next one, which waits for the
                 compute   |= 3 =|= 2 =|= 1 =|= 0 =|      reduction before it reduces its own

All members of a group end a collective together, once the last one has begun. Source: FSDP2 of torch
(torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py): separate streams for gathers and reductions.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from diagnose.simulate.plan import LAYERS, SimulatedRun
from diagnose.simulate.scene import Floats
from diagnose.whatif.replay import Lane
from telemetry.stages import Stage
from telemetry.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerCollective:
    """A collective inside a compute, in all lanes."""

    stage: Stage
    begin: Lane
    end: Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds of the parts of each layer, without waiting, [layers, steps, dp, tp]."""

    work_s: Floats
    gather_s: Floats
    reduce_s: Floats
    """Empty in a forward."""
    tensor_s: Floats
    """The tensor-parallel collective at the end of a layer."""


@dataclass(slots=True, eq=False)
class Streams:
    """Time in seconds when the streams of a pipeline stage are free, [1, steps, dp, tp]."""

    gathers: Lane = field(default_factory=lambda: np.zeros((1, 1, 1, 1)))
    reductions: Lane = field(default_factory=lambda: np.zeros((1, 1, 1, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Groups of ranks with the shards of one model: along dp_shard and cp, or along all replicas without dp_shard.

    If ``axes`` is given: groups along these axes.
    """

    topology: Topology
    axes: tuple[str, ...] = ()

    @property
    def mask(self) -> int:
        if self.axes:
            return self.topology.wide_mask(*self.axes)
        has_shards = self.topology.mask("dp_shard")
        return self.topology.wide_mask("dp_shard", "cp") if has_shards else self.topology.replica_mask

    def last(self, lanes: Lane) -> Lane:
        """The latest time in each group: [..., dp, tp] as in ``lanes``, with the same value for all members."""
        axes = [(at, degree) for at, (name, degree) in enumerate(self.topology.mesh) if name not in ("pp", "tp")]
        lead = lanes.ndim - 2
        full = np.broadcast_to(lanes, (*lanes.shape[:-2], self.topology.dp, lanes.shape[-1]))
        apart = full.reshape(*lanes.shape[:-2], *(degree for _, degree in axes), lanes.shape[-1])
        over = tuple(lead + number for number, (at, _) in enumerate(axes) if self.mask >> at & 1)
        return np.broadcast_to(apart.max(axis=over, keepdims=True), apart.shape).reshape(full.shape)


def masks_of(plan: SimulatedRun, groups: Groups) -> Mapping[Stage, int]:
    """Group masks that recorders of a mesh record. In a plain grid, the stage determines the group."""
    if plan.topology.is_plain:
        return defaultdict(int)
    sharded = groups.mask if plan.fsdp else plan.topology.replica_mask
    along_dp = dict.fromkeys((Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER), sharded)
    return defaultdict(int, along_dp | {Stage.TP_ALL_REDUCE: plan.topology.wide_mask("tp")})


def run_layers(
    begin: Lane, times: LayerTimes, streams: Streams, groups: Groups, *, prefetches: bool
) -> tuple[Lane, list[InnerCollective]]:
    """The end of a compute that begins at ``begin``, and the collectives inside. Updates ``streams``."""
    inside: list[InnerCollective] = []
    gathered = _gather(begin, times.gather_s[0], streams, groups, inside)
    at = np.maximum(begin, gathered)
    for layer in range(LAYERS):
        last = layer == LAYERS - 1
        if prefetches and not last:
            gathered = _gather(at, times.gather_s[layer + 1], streams, groups, inside)
        at = _with_tensor_group(at + times.work_s[layer], times.tensor_s[layer], inside)
        if len(times.reduce_s):
            at = np.maximum(at, streams.reductions)
            _reduce(at, times.reduce_s[layer], streams, groups, inside)
        if not prefetches and not last:
            gathered = _gather(at, times.gather_s[layer + 1], streams, groups, inside)
        at = at if last else np.maximum(at, gathered)
    return at, inside


def _gather(at: Lane, takes: Floats, streams: Streams, groups: Groups, inside: list[InnerCollective]) -> Lane:
    begin = np.maximum(at, streams.gathers)
    streams.gathers = groups.last(begin) + takes
    inside.append(InnerCollective(stage=Stage.PARAMS_ALL_GATHER, begin=begin, end=streams.gathers))
    return streams.gathers


def _reduce(at: Lane, takes: Floats, streams: Streams, groups: Groups, inside: list[InnerCollective]) -> None:
    streams.reductions = groups.last(at) + takes
    inside.append(InnerCollective(stage=Stage.GRADS_REDUCE_SCATTER, begin=at, end=streams.reductions))


def _with_tensor_group(ready: Lane, takes: Floats, inside: list[InnerCollective]) -> Lane:
    if ready.shape[-1] == 1:
        return ready
    end = np.broadcast_to(ready.max(axis=-1, keepdims=True) + takes, ready.shape)
    inside.append(InnerCollective(stage=Stage.TP_ALL_REDUCE, begin=ready, end=end))
    return end
