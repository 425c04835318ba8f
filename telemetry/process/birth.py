"""When a process was born, in words that no step of the wall clock changes: which boot, and how long after it."""

from pathlib import Path

BORN = "born"
"""In the ``meta`` of a rank's identity."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19
"""Of ``/proc/PID/stat``, counted after the name: clock ticks since boot."""


def birth_of(pid: int) -> str:
    """Two processes of one pid differ in it. Empty where there is no such process, or the kernel keeps no such book."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{_BOOT.read_text().strip()} {fields[_START_FIELD]}"
    except (OSError, IndexError):
        return ""


def is_of_this_boot(born: str) -> bool:
    """Whether a process of such a birth read the monotonic clock that is read now; no where nobody knows."""
    try:
        return born.partition(" ")[0] == _BOOT.read_text().strip()
    except OSError:
        return False
