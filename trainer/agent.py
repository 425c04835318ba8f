"""The host agent beside the ranks of a launcher: restarted when it dies, ended with the launcher."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from telemetry.process.child_process import FIRST_PAUSE_S, RestartPauses, child_environment, python_module
from telemetry.record.reader import find_rank_dirs
from trainer.config import RunOptions

LOOK_EVERY_S = 0.2
REFUSED = 2
"""Exit status of an agent that would be refused again: it is not started again."""
PATIENCE_S = 20.0
APPEAR_S = 600.0
"""For a first rank: ranks may import for minutes, and an agent that gave up is not started again."""
DRAIN_S = 45.0
SIGTERM_DRAIN_S = 3.0
"""Likewise, when SIGTERM ended the job. After SIGINT and SIGHUP there is a last round only."""
LAST_ROUND_S = 1.0


class AgentKeeper:
    """An agent from entering to leaving; nothing at all without a collector.

    ``interrupted``: number of the signal that ended the job, 0 while none has. The agent has less time then.
    """

    def __init__(
        self,
        options: RunOptions,
        interrupted: Callable[[], int] = lambda: 0,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._interrupted = interrupted
        self._clock_s = clock_s
        self._process: subprocess.Popen[bytes] | None = None
        self._pauses = RestartPauses()
        self._restart_s: float | None = None
        """When an agent that died is started again; None while it runs, or has been refused."""

    def __enter__(self) -> "AgentKeeper":
        self._start()
        return self

    def look_after(self) -> None:
        """Start an agent again that died, after a pause that doubles up to a minute."""
        status = self._process.poll() if self._process is not None else None
        if status is None or status == REFUSED:
            return
        now_s = self._clock_s()
        if self._restart_s is None:
            self._restart_s = now_s + self._pauses.after_death(now_s)
        elif now_s >= self._restart_s:
            self._start()

    def __exit__(self, *_: object) -> None:
        """Give it a bounded time to ship what is left; it ends by itself once the ranks have. One that waits for its
        restart starts at once, one that is killed is started again. Where no rank has left a file there is nothing to
        wait for."""
        if self._process is not None and not self._has_ranks():
            self._end(self._process)
            return
        if self._restart_s is not None and self._drain_s():
            self._start()
        began_s = time.monotonic()
        while self._process is not None and time.monotonic() - began_s < self._drain_s():
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout=LOOK_EVERY_S)
                if status >= 0:
                    self._tell(status)
                    return
                time.sleep(FIRST_PAUSE_S)
                self._start()
        if self._process is not None:
            self._give_up(self._process)

    def _drain_s(self) -> float:
        number = self._interrupted()
        if not number:
            return DRAIN_S
        return SIGTERM_DRAIN_S if number == signal.SIGTERM else 0.0

    def _tell(self, status: int) -> None:
        if status:
            log = self._options.out / "logs" / "agent.log"
            print(f"agent ended with status {status}: unsent records stay in the spool; see {log}", file=sys.stderr)

    def _give_up(self, process: subprocess.Popen[bytes]) -> None:
        status = self._end(process)
        if status:
            print(f"agent did not finish in {self._drain_s():g} s: unsent records stay in the spool", file=sys.stderr)

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=LAST_ROUND_S)
        process.kill()
        return process.wait()

    def _has_ranks(self) -> bool:
        options = self._options
        return options.spool is not None and bool(find_rank_dirs(options.spool, options.run_id, options.attempt))

    def _start(self) -> None:
        options = self._options
        if not options.telemetry or options.collector is None:
            return
        self._restart_s = None
        self._pauses.started(self._clock_s())
        command = [
            *python_module("telemetry.agent"),
            *("--spool", str(options.spool), "--run", str(options.run_id)),
            *("--attempt", str(options.attempt), "--patience", str(PATIENCE_S), "--appear", str(APPEAR_S)),
            *options.agent_options,
        ]
        with (options.out / "logs" / "agent.log").open("ab") as log:
            # A password in the address must not stand in the list of processes.
            environment = {**child_environment(), "RANKSCOPE_COLLECTOR": options.collector}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
