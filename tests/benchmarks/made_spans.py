"""Spans of a job of any size, made in blocks of steps. Benchmarks fill stores with them.

A step of a rank has 101 spans. Each starts a gap after the end of the previous span:

data-load | (forward-recv forward forward-send) x 16 | (backward-recv backward backward-send) x 16 | gradients ...

Durations scatter by a few percent, gaps by microseconds, hosts' clocks by milliseconds: the stamps are as irregular as
real nanoseconds, so that the spans cannot be compressed better than those of a real run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from telemetry.stages import Stage, StageClass
from telemetry.tables import SPANS

Ints = npt.NDArray[np.int64]

NUM_MICROBATCHES = 16
FIRST_NS = 1_700_000_000_000_000_000
SCATTER = 0.03
GAP_NS = 20_000
CLOCK_NS = 2_000_000
LAG_NS = 400_000
_FORWARD = (Stage.FORWARD_RECV, Stage.FORWARD_COMPUTE, Stage.FORWARD_SEND)
_BACKWARD = (Stage.BACKWARD_RECV, Stage.BACKWARD_COMPUTE, Stage.BACKWARD_SEND)
PROGRAM: tuple[tuple[Stage, int], ...] = (
    (Stage.DATA_LOAD, -1),
    *((stage, number) for number in range(NUM_MICROBATCHES) for stage in _FORWARD),
    *((stage, number) for number in range(NUM_MICROBATCHES) for stage in _BACKWARD),
    (Stage.GRADS_REDUCE_SCATTER, -1),
    (Stage.OPTIMIZER, -1),
    (Stage.PARAMS_ALL_GATHER, -1),
)
"""Stage and microbatch of each span of a step of a rank, except the last, which is the step itself."""
SPANS_A_STEP = len(PROGRAM) + 1
USUAL_NS = {
    Stage.DATA_LOAD: 900_000,
    Stage.FORWARD_COMPUTE: 11_000_000,
    Stage.BACKWARD_COMPUTE: 21_000_000,
    Stage.GRADS_REDUCE_SCATTER: 30_000_000,
    Stage.OPTIMIZER: 8_000_000,
    Stage.PARAMS_ALL_GATHER: 15_000_000,
}
TRANSFER_NS = 700_000


class Recorded(Enum):
    """Data that the clocks of a run record for a span, in addition to start and duration."""

    TIMES = "times alone"
    PROCESSOR_TIME = "processor time of compute and host spans"
    ON_DEVICE = "the issue time of each span"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeJob:
    """A job with made spans. The same seed makes the same spans."""

    num_ranks: int = 1024
    num_steps: int = 1000
    slow_rank: int = 700
    slow_factor: float = 1.3
    recorded: Recorded = Recorded.TIMES
    seed: int = 5

    @property
    def num_spans(self) -> int:
        return self.num_ranks * self.num_steps * SPANS_A_STEP

    def blocks(self, steps_a_block: int) -> Iterator[pa.Table]:
        """Columns of ``telemetry.tables.SPANS``, for ``steps_a_block`` steps of all ranks at a time."""
        draw = np.random.default_rng(self.seed)
        clocks_ns = draw.integers(-CLOCK_NS, CLOCK_NS, self.num_ranks)
        at_ns = FIRST_NS
        for first in range(0, self.num_steps, steps_a_block):
            steps = np.arange(first, min(first + steps_a_block, self.num_steps))
            columns, at_ns = self._block(draw, steps, at_ns, clocks_ns)
            yield pa.table({name: columns[name] for name in SPANS.names}, schema=SPANS)

    def _block(
        self, draw: np.random.Generator, steps: Ints, at_ns: int, clocks_ns: Ints
    ) -> tuple[dict[str, npt.NDArray[np.generic]], int]:
        """Columns of some steps, and when the next begins; arrays [steps, ranks, spans] until they are laid out."""
        duration_ns, start_ns = self._times(draw, len(steps))
        length_ns = start_ns[:, :, -1] + duration_ns[:, :, -1]
        begins_ns = at_ns + np.concatenate([[0], np.cumsum(length_ns.max(axis=1) + GAP_NS)])
        start_ns += (begins_ns[:-1, None] + clocks_ns)[:, :, None] + draw.integers(0, GAP_NS, start_ns.shape[:2])[
            ..., None
        ]
        whole = start_ns[:, :, -1] + duration_ns[:, :, -1] - start_ns[:, :, 0] + GAP_NS
        duration_ns = np.concatenate([duration_ns, whole[..., None]], axis=2)
        start_ns = np.concatenate([start_ns, start_ns[:, :, :1] - GAP_NS], axis=2)
        return self._columns(draw, steps, start_ns.ravel(), duration_ns.ravel()), int(begins_ns[-1])

    def _times(self, draw: np.random.Generator, num_steps: int) -> tuple[Ints, Ints]:
        """Duration and start of each span of the program, from the begin of its rank's step."""
        shape = (num_steps, self.num_ranks, len(PROGRAM))
        usual = np.array([USUAL_NS.get(stage, TRANSFER_NS) for stage, _ in PROGRAM])
        compute = np.array([stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE) for stage, _ in PROGRAM])
        drawn = usual * (1 + SCATTER * draw.standard_normal(shape, dtype=np.float32))
        if self.slow_rank < self.num_ranks:
            drawn[:, self.slow_rank, compute] *= self.slow_factor
        duration_ns = drawn.astype(np.int64)
        gap_ns = draw.integers(GAP_NS // 4, GAP_NS, shape)
        return duration_ns, np.cumsum(duration_ns + gap_ns, axis=2) - duration_ns

    def _columns(
        self, draw: np.random.Generator, steps: Ints, start_ns: Ints, duration_ns: Ints
    ) -> dict[str, npt.NDArray[np.generic]]:
        of_program = [*PROGRAM, (Stage.STEP, -1)]
        stages = np.array([int(stage) for stage, _ in of_program], dtype=np.uint8)
        meets = np.array([stage.stage_class is StageClass.COMMUNICATION for stage, _ in of_program])
        times, ranks = len(steps) * self.num_ranks, np.arange(self.num_ranks)
        count = times * SPANS_A_STEP
        number = np.repeat(steps, self.num_ranks * SPANS_A_STEP)
        peer = np.where(meets & (np.array([number for _, number in of_program]) >= 0), 1, -1)
        rank = np.tile(np.repeat(ranks, SPANS_A_STEP), len(steps))
        stage = np.tile(stages, times)
        streams = np.array([int(stage.stream) for stage, _ in of_program], dtype=np.uint8)
        order = np.cumsum(meets) * meets
        cpu_ns = self._cpu_ns(draw, np.tile(~meets, times), duration_ns)
        issue_ns = self._issue_ns(draw, stage, start_ns)
        return {
            "rank": rank.astype(np.uint32),
            "seq": (number * SPANS_A_STEP + np.tile(np.arange(SPANS_A_STEP), times)).astype(np.uint64),
            "stage": stage,
            "stream": np.tile(streams, times),
            "step": number.astype(np.uint32),
            "microbatch": np.tile(np.array([one for _, one in of_program], dtype=np.int16), times),
            "chunk": np.full(count, 0, dtype=np.int16),
            "peer": np.where(np.tile(peer, times) > 0, (rank + 8) % self.num_ranks, -1).astype(np.int32),
            "op_seq": (np.tile(order, times) + np.tile(meets, times) * number * int(meets.sum())).astype(np.uint32),
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "cpu_ns": cpu_ns,
            "issue_ns": issue_ns,
            "clock": np.where(issue_ns > 0, np.tile(1 + meets, times), 0).astype(np.uint8),
            "size_bytes": np.tile(np.where(meets, 50_331_648, 0).astype(np.uint64), times),
        }

    def _cpu_ns(self, draw: np.random.Generator, own: npt.NDArray[np.bool_], duration_ns: Ints) -> Ints:
        if self.recorded is not Recorded.PROCESSOR_TIME:
            return np.full(len(duration_ns), -1)
        share = 0.97 + 0.01 * draw.standard_normal(len(duration_ns), dtype=np.float32)
        return np.where(own, (duration_ns * share).astype(np.int64), -1)

    def _issue_ns(self, draw: np.random.Generator, stage: npt.NDArray[np.uint8], start_ns: Ints) -> Ints:
        if self.recorded is not Recorded.ON_DEVICE:
            return np.zeros(len(start_ns), dtype=np.int64)
        on_device = ~np.isin(stage, [int(Stage.STEP), int(Stage.DATA_LOAD)])
        return np.where(on_device, start_ns - draw.integers(LAG_NS // 10, LAG_NS, len(start_ns)), 0)
