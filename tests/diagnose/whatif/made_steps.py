"""Small pipelines with round numbers, so that a test can do the sums in its head."""

from collections.abc import Mapping

import numpy as np

from diagnose.model.operations import Operations
from telemetry.stages import Stage
from telemetry.topology import Topology

SECOND = 1_000_000_000


def one_stage(begin_s: np.ndarray, duration_s: np.ndarray) -> Operations:
    """Operations from seconds, [steps, occurrences, ranks]; a negative duration: none."""
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
    """One forward a step on each dp rank ([steps][ranks] seconds), then gradients that meet: who is early waits."""
    work = np.array(work_s)[:, None, :]
    latest = work.max(axis=2, keepdims=True)
    return {
        Stage.FORWARD_COMPUTE: one_stage(np.zeros_like(work), work),
        Stage.GRADS_REDUCE_SCATTER: one_stage(work, latest - work + transfer_s),
        Stage.OPTIMIZER: one_stage(np.broadcast_to(latest + transfer_s, work.shape), np.ones_like(work)),
    }, Topology(dp=work.shape[2])
