"""Python stacks of a rank: py-spy reads the memory of the process, whatever state it is in.

py-spy dump --nonblocking    does not pause the rank and needs no cooperation: 15 ms, also of a stopped process
worker server                if py-spy is missing or not permitted: a C++ thread of torch writes the stacks

Native frames are not read: this would pause the process and read all symbols of torch.
"""

import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from telemetry.evidence.rank_state import is_there, open_process
from telemetry.evidence.worker_client import ask_handler
from telemetry.process.pid_namespace import pid_of
from telemetry.records import RankIdentity

PY_SPY_S = 5.0
MAX_THREADS = 64
MAX_FRAMES = 100
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
_FRAME = re.compile(r'^\s+File "(?P<path>.*)", line (?P<line>\d+) in (?P<function>.*)$')


def take_stack(identity: RankIdentity, folder: Path | None = None) -> str | None:
    """The ``stack`` text of the rank in ``folder``, or None. Waits a bounded time."""
    pid = pid_of(identity)
    with suppress(OSError), open_process(pid, identity.uid) as process:
        found = _by_py_spy(pid)
        if found is not None and is_there(process):  # otherwise another process may have the number by now
            return found
    answer = ask_handler(identity, "dump_traceback", folder)
    return _found("worker-server", threads_of_traceback(answer)) if answer else None


def py_spy() -> str | None:
    """Path of py-spy: beside the interpreter, where its wheel puts it, or on the PATH. None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _by_py_spy(pid: int) -> str | None:
    program = py_spy()
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [program, "dump", "--json", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PY_SPY_S,
            check=True,
        )
        return _found("py-spy", threads_of_py_spy(json.loads(answer.stdout), pid))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None


def _found(tool: str, threads: list[dict[str, Any]]) -> str | None:
    return json.dumps({"tool": tool, "threads": threads}) if threads else None


def threads_of_py_spy(answer: list[dict[str, Any]], pid: int) -> list[dict[str, Any]]:
    """Threads with frames, the main one first. Linux gives the main thread the number of the process.

    Raises:
        KeyError, TypeError: invalid output.
    """
    threads = [
        {
            "name": str(thread["thread_name"] or thread["thread_id"]),
            "main": thread["os_thread_id"] == pid or thread["thread_name"] == "MainThread",
            "frames": [
                f"{frame['name']} ({frame['short_filename'] or frame['filename']}:{frame['line']})"
                for frame in thread["frames"][:MAX_FRAMES]
            ],
        }
        for thread in answer
    ]
    with_frames = [thread for thread in threads if thread["frames"]]
    return sorted(with_frames, key=lambda thread: not thread["main"])[:MAX_THREADS]


def _short(path: str) -> str:
    """A path as py-spy shortens it: ``torch/cuda/streams.py`` for an installed package, otherwise the file's name."""
    installed = _INSTALLED.search(path)
    return path[installed.end() :] if installed else Path(path).name


def threads_of_traceback(answer: str) -> list[dict[str, Any]]:
    """Threads with frames, the main one first, from faulthandler's text, which lists the main thread last."""
    blocks = [block.splitlines() for block in answer.split("\n\n")]
    threads: list[dict[str, Any]] = []
    for lines in blocks:
        frames = [
            f"{found['function']} ({_short(found['path'])}:{found['line']})"
            for found in map(_FRAME.match, lines[1 : MAX_FRAMES + 1])
            if found
        ]
        if frames:
            threads.append({"name": lines[0].partition(" (")[0], "main": False, "frames": frames})
    if threads:
        threads[-1]["main"] = True
    return threads[::-1][:MAX_THREADS]
