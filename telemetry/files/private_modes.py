"""Permission bits of new files and folders: private to their user, whatever the umask of the process is.

RANKSCOPE_UMASK    files    folders
077 (default)      0600     0700
027                0640     0750
022                0644     0755
"""

import os
import stat
from collections.abc import Mapping

from telemetry.errors import UsageError

UMASK_VARIABLE = "RANKSCOPE_UMASK"
USUAL_UMASK = 0o077
WRITABLE_BY_OTHERS = 0o022


def private_umask(environment: Mapping[str, str] = os.environ) -> int:
    """The permission bits that new files and folders do not get: ``RANKSCOPE_UMASK``, by default 077.

    Raises:
        UsageError: it is not an octal number, or it lets others write.
    """
    text = environment.get(UMASK_VARIABLE) or f"{USUAL_UMASK:o}"
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777 or mask & WRITABLE_BY_OTHERS != WRITABLE_BY_OTHERS or mask & 0o700:
        raise UsageError(
            f"{UMASK_VARIABLE} is {text!r}",
            hint="use 077 (private, the default), 027 (readable by the group) or 022 (readable by all)",
        )
    return mask


def file_mode() -> int:
    """Permission bits of a new file."""
    return 0o666 & ~private_umask()


def folder_mode() -> int:
    """Permission bits of a new folder."""
    return 0o777 & ~private_umask()


def make_exact(place: int | str, found: os.stat_result, mode: int) -> None:
    """Give what was just created ``mode``, whatever the umask is. The set-group-ID bit of a parent folder stays."""
    before = stat.S_IMODE(found.st_mode)
    if before != (exact := before & ~0o777 | mode):
        os.chmod(place, exact)
