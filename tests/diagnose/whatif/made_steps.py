"""Small pipelines with round numbers. Expected values can be calculated by hand."""

from collections.abc import Mapping

import numpy as np

from diagnose.model.operations import Operations
from telemetry.stages import Stage
from telemetry.topology import Topology

SECOND = 1_000_000_000


def one_stage(begin_s: np.ndarray, duration_s: np.ndarray) -> Operations:
    """Operations from seconds, [steps, occurrences, ranks]. A negative duration means no operation."""
    present = duration_s >= 0
    shape = begin_s.shape
    numbers = np.broadcast_to(np.arange(shape[1])[None, :, None], shape)
    return Operations(
        start_ns=np.where(present, (begin_s * SECOND).round(), -1).astype(np.int64),
        duration_ns=np.where(present, (duration_s * SECOND).round(), -1).astype(np.int64),
        cpu_ns=np.full(shape, -1),
        microbatch=np.where(present, numbers, -1).astype(np.int16),
        chunk=np.where(present, 0, -1).astype(np.int16),
        peer=np.full(shape, -1, dtype=np.int32),
    )


def data_parallel(work_s: list[list[float]], *, transfer_s: float = 0.0) -> tuple[Mapping[Stage, Operations], Topology]:
    """One forward per step on each dp rank ([steps][ranks] seconds), then a gradient collective: early ranks wait."""
    work = np.array(work_s)[:, None, :]
    latest = work.max(axis=2, keepdims=True)
    return {
        Stage.FORWARD_COMPUTE: one_stage(np.zeros_like(work), work),
        Stage.GRADS_REDUCE_SCATTER: one_stage(work, latest - work + transfer_s),
        Stage.OPTIMIZER: one_stage(np.broadcast_to(latest + transfer_s, work.shape), np.ones_like(work)),
    }, Topology(dp=work.shape[2])
