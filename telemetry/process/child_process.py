"""Child processes of rankscope: how they start, end with their parent, and are restarted.

start     python -P -m MODULE: the working directory is not on the path. PYTHONPATH leads to our packages.
          So files of the user that have the names of our modules are not loaded.
program   parent: Popen(command, env=child_environment())
          child:  end_with_starter() first; the kernel sends SIGHUP when the parent is gone
fork      child:  tie_to_parent(pid) first; the kernel sends SIGKILL
torchrun  child:  end_with_torchrun() before torch is imported; the kernel sends SIGKILL

The kernel treats the end of the thread that started the child as the end of the parent. So that thread has to live as
long as the child. A SIGHUP that arrives before the child handles it kills the child.

The birth of a process is given as boot and time since boot, so that steps of the wall clock do not change it.

A process that died is restarted after a pause:

    start -> dies -> 1 s -> start -> dies -> 2 s -> start -> dies -> 4 s ... 60 s -> start -> lives 60 s, dies -> 1 s
"""

import ctypes
import os
import signal
import site
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds our packages: a checkout, or site-packages."""
STARTER = "RANKSCOPE_STARTER"
"""Environment variable: pid of the process that started this process. This process must not outlive it."""
TORCHRUN = "TORCHELASTIC_RUN_ID"
"""Environment variable that torchrun sets for its ranks."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_NAME_CHARACTERS = 15
_FIRST_PARENT = os.getppid()
BORN = "born"
"""Key in the ``meta`` of a rank's identity: the birth of its process."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD = 19
"""Position of the start time in ``/proc/PID/stat``, counted after the name. Its unit is clock ticks since boot."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONG_LIFE_S = 60.0
"""If a process lived for this time, the next pause is the first one again."""


def python_module(module: str) -> list[str]:
    """The command that runs ``module`` in this interpreter."""
    return [sys.executable, "-P", "-m", module]


def path_to_packages(environment: Mapping[str, str] = os.environ) -> str:
    """``PYTHONPATH`` for a process of ours: that of ``environment``, with our packages first."""
    given = environment.get("PYTHONPATH", "")
    if str(HOME) in (*site.getsitepackages(), site.getusersitepackages()):
        return given
    return os.pathsep.join(filter(None, (str(HOME), given)))


def path_of_this_process() -> str:
    """``PYTHONPATH`` for a process of ours that a user's program starts: the path of the program, without the folder of
    its script and the working directory."""
    left_out = _folders_of_the_user() - {HOME}
    return os.pathsep.join(path for path in sys.path if path and Path(path).resolve() not in left_out)


def _folders_of_the_user() -> set[Path]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = set() if script is None else {Path(script).resolve().parent}
    with suppress(OSError):  # the working directory was deleted
        folders.add(Path.cwd().resolve())
    return folders


def birth_of(pid: int) -> str:
    """The boot and the start time of a process. It differs for two processes of one pid. Empty if it is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{_BOOT.read_text().strip()} {fields[_START_FIELD]}"
    except (OSError, IndexError):
        return ""


def has_ended(pid: int, born: str) -> bool:
    """Whether the process of this pid and birth has ended. A zombie has ended, too."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in "ZX" or birth_of(pid) != born


def is_of_this_boot(born: str) -> bool:
    """Whether a process of this birth started since the last boot, so that monotonic times compare."""
    try:
        return born.partition(" ")[0] == _BOOT.read_text().strip()
    except OSError:
        return False


def child_environment() -> dict[str, str]:
    """The environment for a process of ours that calls :func:`end_with_starter`."""
    return {**os.environ, STARTER: str(os.getpid()), "PYTHONPATH": path_to_packages()}


def end_with_starter() -> None:
    """Let the kernel send SIGHUP to this process when its starter ends. Does nothing if a user started it."""
    starter = os.environ.pop(STARTER, "")  # children of this process have another parent
    if starter.isdecimal():
        signal.signal(
            signal.SIGHUP, signal.SIG_DFL
        )  # under nohup the starter ignores it, and this process inherits that
        end_with_parent(int(starter), signal.SIGHUP)


def tie_to_parent(parent: int) -> None:
    """Call in a forked child. Only ``parent`` ends it. It ignores the terminal's signals, which the parent gets too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent(parent, signal.SIGKILL)


def end_with_torchrun() -> None:
    """Call in a rank. The kernel then kills this process when torchrun ends, or at once if torchrun ended after this
    module was imported. Does nothing under other launchers: their threads may end before the job."""
    if TORCHRUN in os.environ:
        end_with_parent(_FIRST_PARENT, signal.SIGKILL)


def end_with_parent(parent: int, number: int) -> None:
    """Let the kernel send ``number`` to this process when its parent ends; at once if ``parent`` has ended already."""
    with suppress(AttributeError):  # no prctl: not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def name_process(name: str) -> None:
    """Set the name that ``ps -o comm`` shows for a forked process: at most 15 characters."""
    assert len(name) <= _NAME_CHARACTERS, name
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


class RestartPauses:
    """Pauses before each restart of one process. Times are seconds of any monotonic clock."""

    def __init__(self, first_s: float = FIRST_PAUSE_S) -> None:
        assert first_s > 0, "a pause of 0 s would never grow"
        self._first_s = first_s
        self._next_s = first_s
        self._started_s: float | None = None

    def started(self, now_s: float) -> None:
        """The process has started."""
        self._started_s = now_s

    def after_death(self, now_s: float) -> float:
        """The pause before the next start, in seconds. Call it when the process has ended or could not be started."""
        if self._started_s is not None and now_s - self._started_s >= LONG_LIFE_S:
            self._next_s = self._first_s
        self._started_s = None
        pause_s, self._next_s = self._next_s, min(LONGEST_PAUSE_S, 2 * self._next_s)
        return pause_s
