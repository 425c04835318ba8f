"""Why a checkpoint cannot be written, in words for the user.

rank --- checkpoint after step 11 is not written: the disk of /ckpt is full ---> log of the rank
  '--> the process that started it (``rank_messages.py``) --> terminal, or decision of the driver
"""

import shutil
from contextlib import suppress
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.user_errors import is_disk_full, user_error

SPACE_HINT = (
    "free space there, or continue the job with a smaller --keep or another folder: --checkpoints DIR. The disk needs "
    "space for --keep checkpoints and one more"
)
OTHER_RANK = "another rank could not write its part"
_MIB = 2**20


class OtherRankError(Exception):
    """The checkpoint was abandoned, because another rank could not write its part."""


def full_disk(root: Path) -> UsageError:
    """The error of a full disk that holds the folder of checkpoints."""
    size = ""
    with suppress(OSError):
        size = f" ({shutil.disk_usage(root).total / _MIB:,.0f} MiB in all)"
    return UsageError(
        f"the disk of {root} is full{size}",
        hint=SPACE_HINT,
    )


def why_not_written(error: BaseException, root: Path) -> str:
    """Why a rank could not write its part of a checkpoint, or complete it, with a hint where there is one."""
    if is_disk_full(error):
        return str(full_disk(root))
    removed = isinstance(error, FileNotFoundError) and root.is_dir()  # by rank 0: the checkpoint was abandoned
    if removed or isinstance(error, OtherRankError):
        return OTHER_RANK
    return str(user_error(error) or error) or type(error).__name__
