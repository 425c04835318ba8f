"""Operations of a run as it goes: an array of every stage, filled slot by slot.

add(stage, pp, occurrence, begin, end)      lanes [steps, dp, tp] of one pipeline rank, seconds from the step's begin
operations(zero_ns)                         stage -> arrays [steps, occurrences, ranks], nanoseconds
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Int64s, Operations
from diagnose.simulate.scene import Floats
from telemetry.stages import Stage
from telemetry.topology import Topology, peer_of_mask

NS_PER_S = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one slot did in every lane: seconds from the step's begin."""

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
    present: npt.NDArray[np.bool_] | None = None
    """Lanes in which it took place; None: in all."""


class Book:
    """Everything that was written."""

    def __init__(self, topology: Topology, num_steps: int) -> None:
        self._topology = topology
        self._num_steps = num_steps
        self._slots: dict[Stage, list[Written]] = defaultdict(list)

    def add(self, slot: Written) -> None:
        self._slots[slot.stage].append(slot)

    def operations(self, zero_ns: Int64s) -> dict[Stage, Operations]:
        """All operations, with the steps' begins at ``zero_ns``; what was written is let go."""
        stages = sorted(self._slots)
        return {stage: self._of_stage(self._slots.pop(stage), zero_ns) for stage in stages}

    def _of_stage(self, slots: list[Written], zero_ns: Int64s) -> Operations:
        topology = self._topology
        num_occurrences = max(one.occurrence for one in slots) + 1
        grid = (self._num_steps, num_occurrences, topology.dp, topology.pp, topology.tp)
        columns = {
            name: np.full(grid, ABSENT, dtype=dtype)
            for name, dtype in (
                *(("start_ns", np.int64), ("duration_ns", np.int64), ("cpu_ns", np.int64)),
                *(("microbatch", np.int16), ("chunk", np.int16), ("peer", np.int32)),
            )
        }
        for one in slots:
            self._put(columns, one, zero_ns)
        return Operations(**{name: topology.by_rank(values) for name, values in columns.items()})

    def _put(self, columns: dict[str, npt.NDArray[np.signedinteger]], one: Written, zero_ns: Int64s) -> None:
        where = (slice(None), one.occurrence, slice(None), one.pp, slice(None))
        begin, end = ns_of(one.begin_s), ns_of(one.end_s)
        values: dict[str, npt.NDArray[np.int64] | int] = {
            "start_ns": zero_ns[:, None, None] + begin,
            "duration_ns": end - begin,
            "cpu_ns": ABSENT if one.cpu_s is None else ns_of(one.cpu_s),
            "microbatch": one.microbatch,
            "chunk": one.chunk,
            "peer": peer_of_mask(one.mask) if one.mask else self._peers(one.peer_pp),
        }
        for name, value in values.items():
            kept = columns[name][where]
            columns[name][where] = value if one.present is None else np.where(one.present, value, kept)

    def _peers(self, pp: int) -> npt.NDArray[np.int64] | int:
        """Rank on that pipeline rank in each lane."""
        if pp < 0:
            return ABSENT
        return self._topology.grid[None, :, pp, :]


def ns_of(seconds: Floats) -> Int64s:
    """Whole nanoseconds."""
    return np.rint(seconds * NS_PER_S).astype(np.int64)
