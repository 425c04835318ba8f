"""A healthy training, and a disturbance that slows one of its ranks from outside.

stopped     the rank is stopped and continued, over and over (SIGSTOP, SIGCONT)
crowded     the rank is pinned to one core, and other processes burn that core
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil

from tests.deadline import until
from tests.scenarios.command import rankscope
from tests.trainer.jobs import figures

BEFORE_STEPS = 8
"""Healthy steps before the disturbance."""
WITHIN_STEPS = 20
"""After this many more steps the rank must be named."""
NUM_STEPS = BEFORE_STEPS + WITHIN_STEPS + 4
START_S, RUN_S = 120.0, 600.0
STOPPED_S, CONTINUED_S = 0.3, 0.3
NUM_BURNERS = 6
BURN = "while True: pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowed:
    """Findings of `rankscope diagnose` on the steps up to twenty after the start of the disturbance."""

    first_step: int
    findings: list[dict[str, Any]]

    @property
    def accused(self) -> list[tuple[str, list[int]]]:
        """Kind and initiating ranks of each finding that names a rank."""
        return [(finding["kind"], finding["ranks"]) for finding in self.findings if finding["ranks"]]

    @property
    def causes(self) -> list[str]:
        """The cause on the host, of each finding that has one."""
        return [finding["evidence"]["cause"] for finding in self.findings if "cause" in finding["evidence"]]

    @property
    def victims(self) -> set[int]:
        """Ranks that the findings call victims."""
        return {one["rank"] for finding in self.findings for one in finding["suspects"] if one["role"] == "victim"}


@contextmanager
def stopped_and_continued(pid: int) -> Iterator[None]:
    """Stop a rank half of the time."""
    over = Event()

    def disturb() -> None:
        with suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait(STOPPED_S)
                os.kill(pid, signal.SIGCONT)
                over.wait(CONTINUED_S)

    thread = Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def crowded(pid: int) -> Iterator[None]:
    """Pin a rank to one core, which other processes use too."""
    core = max(os.sched_getaffinity(0))
    for thread in psutil.Process(pid).threads():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, {core})
    burners = [subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True) for _ in range(NUM_BURNERS)]
    try:
        for burner in burners:
            os.sched_setaffinity(burner.pid, {core})
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def slow_down(rank: int, out: Path, disturb: Callable[[int], Any]) -> Slowed:
    """Train eight ranks, disturb ``rank`` after a while, and ask `rankscope diagnose` over the steps up to twenty
    later."""
    command = [sys.executable, "-m", "ui.cli", "demo", "--exit", "--json", "--fault", "none"]
    command += ["--steps", str(NUM_STEPS), "--out", str(out)]
    with ExitStack() as stack, (out.parent / "demo.log").open("wb") as log:
        demo = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        stack.callback(_end, demo)
        until(lambda: len(figures(out)) >= BEFORE_STEPS, seconds=START_S, what="a training under way")
        first_step = len(figures(out))
        with disturb(_pid_of(rank, out)):
            until(lambda: demo.poll() is not None or len(figures(out)) >= NUM_STEPS, seconds=RUN_S, what="its end")
        demo.wait(RUN_S)
    answer = rankscope(
        "diagnose", "--store", f"embedded:{out / 'store'}", "--last-step", first_step + WITHIN_STEPS, "--json"
    )
    assert answer.status in (0, 1), answer.error
    return Slowed(first_step=first_step, findings=json.loads(answer.out)["findings"])


def _pid_of(rank: int, out: Path) -> int:
    metas = (json.loads(path.read_text()) for path in out.glob("spool/**/meta.json"))
    return next(int(meta["pid"]) for meta in metas if meta["rank"] == rank)


def _end(demo: subprocess.Popen[bytes]) -> None:
    if demo.poll() is None:
        demo.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            demo.wait(60)
    if demo.poll() is None:
        demo.kill()
        demo.wait()


if __name__ == "__main__":
    began = time.monotonic()
    found = slow_down(
        int(sys.argv[2]), Path(sys.argv[3]), {"stopped": stopped_and_continued, "crowded": crowded}[sys.argv[1]]
    )
    print(found.first_step, found.accused, sorted(found.victims), f"{time.monotonic() - began:.0f} s")
    for finding in found.findings:
        print(finding["kind"], finding["severity"], finding["ranks"], finding["summary"], finding["evidence"])
