"""Starting the host's agent beside the ranks: a process of its own that outlives them and ends by itself."""

import os
import sys
from pathlib import Path

LOG_NAME = "agent.log"


def spawn_agent(*, spool: Path, run_id: str, attempt: int, collector: str) -> int:
    """Start ``python -m telemetry.agent`` in a session of its own; its pid. What it says goes to ``agent.log``.

    Spawned, not forked: the rank may hold a device and gigabytes of memory. The address travels in the environment:
    a password in it must not stand in the list of processes.

    Raises:
        OSError: it cannot be started.
    """
    arguments = ["--spool", str(spool), "--run", run_id, "--attempt", str(attempt)]
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "telemetry.agent", *arguments],
        {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "RANKSCOPE_COLLECTOR": collector,
        },
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(spool / LOG_NAME), appending, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
