"""Commands in their own terminal that end in every way, and the processes and memory that they leave behind.

A command and all processes that it starts have a mark in their environment. The kernel shows it in /proc/PID/environ.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.stores.queries import Runs
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.processes import Road, free_port

LEFT_S = 10.0
AGAIN_S = 0.3
READY_S = 180.0
MARK = "RANKSCOPE_TEST_MARK"
STARTER = """
import fcntl, signal, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.exit(subprocess.call(sys.argv[1:]))
"""
TWO_RANKS = ("--dp", "2", "--pp", "1", "--tp", "1")
CTRL_C = b"\x03"
RULES = """
state = "alerts.sqlite"
[hooks.file]
type = "log"
path = "notices.log"
"""


@dataclass(kw_only=True)
class Terminal:
    """A command in the foreground of a terminal. ``starter`` acts as the shell and leads the session."""

    mark: str
    starter: subprocess.Popen[bytes]
    master: int
    printed: bytearray = field(default_factory=bytearray)
    shared_memory: set[str] = field(default_factory=set)

    @property
    def command(self) -> int:
        """Pid of the command."""
        (pid,) = children(self.starter.pid)
        return pid

    def press_ctrl_c(self) -> None:
        os.write(self.master, CTRL_C)

    def close(self) -> None:
        """Close the terminal, as when its window closes. The kernel sends SIGHUP."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1

    def read(self) -> str:
        """All that was printed so far."""
        while self.master >= 0:
            try:
                self.printed += os.read(self.master, 65536)
            except (BlockingIOError, OSError):
                break
        return self.printed.decode(errors="replace")

    def living(self) -> dict[int, str]:
        """Command lines of the processes with the mark, by pid, without the starter."""
        found = marked(self.mark)
        found.pop(self.starter.pid, None)
        for pid in found:
            self.shared_memory |= shared_memory_of(pid)
        return found

    def left(self) -> list[str]:
        """Processes and shared memory that are left behind."""
        processes = [f"process {pid}: {words}" for pid, words in self.living().items()]
        return processes + [f"shared memory {name}" for name in self.shared_memory if Path(name).exists()]


def marked(mark: str) -> dict[int, str]:
    """Command lines of the living processes with ``mark``, by pid."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            carries = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if carries and (folder / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def shared_memory_of(pid: int) -> set[str]:
    """Files in /dev/shm that the process has mapped, without those in folders: temporary files may lie there."""
    with suppress(OSError):
        return set(re.findall(r" (/dev/shm/[^/\n]+)(?<! \(deleted\))$", Path(f"/proc/{pid}/maps").read_text(), re.M))
    return set()


@contextmanager
def terminal(command: list[str], folder: Path, **variables: str) -> Iterator[Terminal]:
    """``command`` at a terminal, in ``folder``. All its processes are killed at the end."""
    mark = uuid.uuid4().hex
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    python_path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": python_path, MARK: mark, "TERM": "dumb", **variables}
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, *command],
        stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    made = Terminal(mark=mark, starter=starter, master=master)
    try:
        yield made
    finally:
        made.close()
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        starter.kill()
        starter.wait()


def rankscope(*words: str) -> list[str]:
    return [sys.executable, "-m", "ui.cli", *words]


def killed(seen: Terminal) -> None:
    os.kill(seen.command, signal.SIGKILL)


def terminated(seen: Terminal) -> None:
    os.kill(seen.command, signal.SIGTERM)


def hung_up(seen: Terminal) -> None:
    os.kill(seen.command, signal.SIGHUP)


def interrupted(seen: Terminal) -> None:
    seen.press_ctrl_c()


def three_times(act: Callable[[Terminal], None]) -> Callable[[Terminal], None]:
    """Act three times. Wait after each until a process has ended, or for ``AGAIN_S``."""

    def again_and_again(seen: Terminal) -> None:
        for _ in range(3):
            living, deadline = seen.living().keys(), time.monotonic() + AGAIN_S
            with suppress(ValueError, OSError):  # the command has ended
                act(seen)
            while seen.living().keys() == living and time.monotonic() < deadline:
                time.sleep(0.02)

    return again_and_again


def parent_killed(seen: Terminal) -> None:
    seen.starter.kill()
    seen.starter.wait()


ENDS: dict[str, Callable[[Terminal], None]] = {
    "SIGKILL": killed,
    "closed terminal": Terminal.close,
    "SIGTERM": terminated,
    "SIGTERM three times": three_times(terminated),
    "SIGHUP": hung_up,
    "Ctrl-C": interrupted,
    "Ctrl-C three times": three_times(interrupted),
    "parent killed": parent_killed,
}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A command, and a check that all of its processes run."""

    command: list[str]
    ready: Callable[[Terminal], object]


def demo_scene(folder: Path, road: Road) -> Scene:
    def ready(seen: Terminal) -> bool:
        training = bool(list(folder.glob("out/progress.jsonl")))
        return training and any("telemetry.agent" in words for words in seen.living().values())

    return Scene(command=rankscope("demo", "--steps", "10000", "--out", str(folder / "out")), ready=ready)


def train_scene(folder: Path, road: Road) -> Scene:
    command = rankscope("train", *TWO_RANKS, "--steps", "10000", "--out", str(folder / "out"), "--collector", road.url)
    return Scene(command=command, ready=demo_scene(folder, road).ready)


def collect_scene(folder: Path, road: Road) -> Scene:
    (folder / "rules.toml").write_text(RULES)
    port = str(free_port())
    options = ["--port", port, "--store", f"embedded:{folder / 'store'}", "--alerts", str(folder / "rules.toml")]
    return Scene(command=rankscope("collect", *options), ready=lambda seen: "watching http" in seen.read())


def agent_scene(folder: Path, road: Road) -> Scene:
    command = rankscope("agent", "--spool", str(road.spool), "--collector", road.url)
    return Scene(command=command, ready=lambda seen: list(road.spool.glob("*/*/rank-*/evidence")) or _sends(road))


def _sends(road: Road) -> bool:
    with CollectorClient(road.url) as client:
        return bool(client.read(Runs()).num_rows)


def alerts_scene(folder: Path, road: Road) -> Scene:
    (folder / "rules.toml").write_text(RULES)
    command = rankscope("alerts", "run", "--config", str(folder / "rules.toml"), "--store", road.url)
    return Scene(command=command, ready=lambda seen: "watching http" in seen.read())


SCENES = {
    "demo": demo_scene,
    "train": train_scene,
    "collect": collect_scene,
    "agent": agent_scene,
    "alerts": alerts_scene,
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended: seconds until nothing was left, what was left, and what it printed."""

    seconds: float
    left: list[str]
    printed: str

    @property
    def faults(self) -> list[str]:
        return self.left + ["it printed a traceback"] * ("Traceback" in self.printed)


def end(seen: Terminal, act: Callable[[Terminal], None]) -> Ended:
    """End the command by ``act``. Wait until nothing is left, at most ``LEFT_S`` seconds."""
    seen.living()
    began = time.monotonic()
    act(seen)
    printed = ""
    while (left := seen.left()) and time.monotonic() - began < LEFT_S:
        printed = seen.read()
        time.sleep(0.02)
    return Ended(seconds=time.monotonic() - began, left=left, printed=printed + seen.read())


def staged(name: str, way: str, folder: Path) -> Ended:
    """End the command of scene ``name`` in this ``way`` while it works. Return the result."""
    store = f"embedded:{folder / 'served'}"
    made = Road(folder, store, num_ranks=1)
    with ExitStack() as cleanup:
        for part in made.parts:
            cleanup.callback(part.kill)
        if name in ("train", "agent", "alerts"):
            made.start_collector()
        if name == "agent":
            made.ranks[0].start()
        scene = SCENES[name](folder, made)
        seen = cleanup.enter_context(terminal(scene.command, folder))
        until(lambda: scene.ready(seen) or seen.starter.poll() is not None, seconds=READY_S, every=0.2, what="ready")
        assert seen.starter.poll() is None, seen.read()
        return end(seen, ENDS[way])
