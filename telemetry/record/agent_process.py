"""The host's agent: a separate process that is restarted if it dies, and outlives the ranks.

local rank 0   spawn --> agent
   '- thread   waitid(agent): killed, crashed --> warn, pause, spawn again
                              status 0, 2 ------> the end: all is stored, or the agent was refused

The thread waits for this one child and reaps no other child. If other code reaps every child (``os.waitpid(-1)``), the
exit status is lost, and the agent counts as dead.
"""

import fcntl
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from telemetry.files.private_files import open_folder
from telemetry.process.child_process import FIRST_PAUSE_S, RestartPauses, path_of_this_process, python_module
from telemetry.record.layout import AGENT_LOG_NAME, ATTEMPT_FOLDER_DEPTH
from telemetry.settings import RecordingSettings

FINISHED = (0, 2)
"""Exit statuses after which another agent would have no work, or would be refused too."""
SETTLE_S = 1.0
CLAIM_NAME = "agent.claim"
"""A file that is locked by the rank that starts the agent."""


class KeptAgent:
    """An agent that is started, and restarted if it dies, while this process lives.

    Args:
        spawn: starts an agent and returns its pid. Raises OSError if it cannot.
        warn: receives one line about each death.

    Raises:
        OSError: the first agent cannot be started.
    """

    def __init__(
        self, spawn: Callable[[], int], warn: Callable[[str], None], *, first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._spawn = spawn
        self._warn = warn
        self._pauses = RestartPauses(first_pause_s)
        self._ended = False
        self._hurried, self._settled = threading.Event(), threading.Event()
        self._settled.set()
        self.thread = threading.Thread(target=self._keep, args=(spawn(),), name="rankscope-agent", daemon=True)
        self.thread.start()

    def session_ended(self) -> None:
        """Call when the session ends. If the agent is down, it is restarted at once. After that it is restarted only if
        a signal kills it. Waits at most 1 s for the restart."""
        self._ended = True
        self._hurried.set()
        self._settled.wait(SETTLE_S)

    def _keep(self, pid: int | None) -> None:
        while pid is not None:
            self._pauses.started(monotonic())
            status = wait_for_child(pid)
            if status in FINISHED or (self._ended and (status is None or status > 0)):
                return
            self._settled.clear()
            pause_s = self._pauses.after_death(monotonic())
            self._warn(f"the agent {_manner(status)} and is restarted in {pause_s:g} s: records wait in the spool")
            pid = self._restart(pause_s)
            self._settled.set()

    def _restart(self, pause_s: float) -> int | None:
        """The pid of another agent; None if it cannot be started after the session has ended."""
        while True:
            self._hurried.wait(pause_s)
            self._hurried.clear()
            with suppress(OSError):
                return self._spawn()
            if self._ended:
                return None
            pause_s = self._pauses.after_death(monotonic())


def wait_for_child(pid: int) -> int | None:
    """The exit status of the child ``pid`` once it has ended, -n after signal n; None if other code has reaped it."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED)
    except ChildProcessError:
        return None
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _manner(status: int | None) -> str:
    if status is None:
        return "ended"
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"


def spawn_agent(*, spool: Path, run_id: str, attempt: int, collector: str) -> int:
    """Start ``python -P -m telemetry.agent`` in a session of its own. Returns its pid. Its output goes to ``agent.log``
    beside the folders of the ranks.

    The agent is spawned, not forked: the rank may hold a device and gigabytes of memory. The address is passed in the
    environment: it may contain a password, which must not be in the list of processes.

    Raises:
        OSError: it cannot be started.
    """
    arguments = ["--spool", str(spool), "--run", run_id, "--attempt", str(attempt)]
    # The log is opened here and not in the child, because this process waits for the child until that runs Python.
    log = _open_log(spool / run_id / str(attempt))
    try:
        return os.posix_spawn(
            sys.executable,
            [*python_module("telemetry.agent"), *arguments],
            {
                **os.environ,
                "PYTHONPATH": path_of_this_process(),
                "RANKSCOPE_COLLECTOR": collector,
            },
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(log)


def claims_agent(settings: RecordingSettings) -> bool:
    """Whether this process is the first of its run on this host that asks. Its claim ends with the process.

    For ranks whose launcher gave no local rank.

    Raises:
        OSError: the folder of the run cannot be opened.
    """
    with open_folder(settings.spool / settings.run_id / str(settings.attempt), below=ATTEMPT_FOLDER_DEPTH) as folder:
        descriptor = folder.open(CLAIM_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True  # the descriptor stays open


def _open_log(attempt_folder: Path) -> int:
    """Open the log of the agent, in the folder of the attempt: the spool itself may belong to several users. If that is
    not possible, open /dev/null."""
    try:
        with open_folder(attempt_folder, below=ATTEMPT_FOLDER_DEPTH) as folder:
            return folder.open(AGENT_LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
