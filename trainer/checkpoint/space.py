"""Checks whether the checkpoints of a job fit on the disk, before the first one is written.

shards of all ranks --size--> (--keep + 1) checkpoints, less those that are stored <--> free space of the disk
"""

import math
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from trainer.checkpoint.failure import SPACE_HINT
from trainer.checkpoint.folder import complete_steps

ITEM_BYTES = 2048
"""Size of a stored tensor besides its values: the header of torch's file format, and its lines in lists of content."""
_MIB = 2**20


def planned_bytes(plans: Iterable[SavePlan]) -> int:
    """The approximate size of a checkpoint that consists of these plans."""
    return sum(_values_bytes(item) + ITEM_BYTES for plan in plans for item in plan.items)


def _values_bytes(item: WriteItem) -> int:
    """The size of the part of a tensor that one rank writes."""
    part = item.tensor_data
    return math.prod(part.chunk.sizes) * part.properties.dtype.itemsize if part else 0


def why_too_little_space(root: Path, size_bytes: int, keep: int) -> str:
    """A warning with a hint if checkpoints of ``size_bytes`` will not fit; empty if they fit or this is not known.

    Before an old checkpoint is removed, ``keep`` complete ones and a new one are on the disk.
    """
    with suppress(OSError):
        more = keep + 1 - min(keep, len(complete_steps(root)))
        free_bytes = shutil.disk_usage(root).free
        if free_bytes < more * size_bytes:
            size, free = math.ceil(size_bytes / _MIB), free_bytes // _MIB
            checkpoints = f"{more} more checkpoints" if more > 1 else "one more checkpoint"
            needed = f"no room for {checkpoints} of about {size:,} MiB each: {free:,} MiB are free"
            return f"the disk of {root} has {needed}; hint: {SPACE_HINT}"
    return ""
