"""Rollouts: sequences that a rank generates. Their lengths differ by nature, so only the time per byte is compared."""

from collections.abc import Mapping

import numpy as np

from diagnose.model.operations import Floats, Operations
from diagnose.model.peers import medians
from diagnose.model.view import Basis, Work
from telemetry.stages import Stage


def rollout_work(operations: Mapping[Stage, Operations]) -> dict[Stage, Work]:
    """Compute time of each rank in its rollouts if all of them had the typical size. Empty if sizes are not recorded.

    A rank with long rollouts is not slow. A rank that needs more time per byte is.
    """
    rollouts = operations.get(Stage.ROLLOUT)
    per_byte = None if rollouts is None else time_per_byte(rollouts)
    if rollouts is None or per_byte is None or rollouts.size_bytes is None:
        return {}
    typical_bytes = float(np.median(rollouts.size_bytes[rollouts.present]))
    ns = np.where(rollouts.present, per_byte, 0.0).sum(axis=1) * typical_bytes
    ns[~rollouts.present.any(axis=1)] = np.nan
    return {Stage.ROLLOUT: Work(ns=ns, basis=Basis.SELF_TIME)}


def time_per_byte(rollouts: Operations) -> Floats | None:
    """Nanoseconds per byte of each rollout, in the shape of the operations. None if a rollout has no size."""
    sizes = rollouts.size_bytes
    if sizes is None or not rollouts.present.any() or not (sizes[rollouts.present] > 0).all():
        return None
    return np.where(rollouts.present, rollouts.duration_ns / np.maximum(sizes, 1), np.nan)


def rollout_time_ns(rollouts: Operations) -> Floats:
    """Time of all rollouts of a rank in a step, [steps, ranks], if every rank were equally fast.

    The speed of a rank is its time per byte in the whole window. Without sizes it is its typical time: then a rank that
    always takes longer is slow, or always gets longer rollouts.
    """
    total, each = rollouts.total_ns(), time_per_byte(rollouts)
    of_rank = medians(total if each is None else each.reshape(-1, each.shape[2]), axis=0)
    return np.asarray(total / (of_rank / np.nanmedian(of_rank)))
