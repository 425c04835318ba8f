"""Runs the host agent for the ranks of a launcher. The agent is restarted if it dies, and ends with the launcher."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from telemetry.printable import log
from telemetry.process.child_process import FIRST_PAUSE_S, RestartPauses, child_environment, python_module
from telemetry.record.reader import find_rank_dirs
from trainer.output import LOGS, open_log
from trainer.run_options import RunOptions

LOG = "agent.log"
POLL_S = 0.2
REFUSED = 2
"""Exit status of an agent after an error that a restart does not repair. It is not restarted."""
PATIENCE_S = 20.0
APPEAR_S = 600.0
"""Time that the agent waits for a first rank. Imports of ranks may take minutes."""
DRAIN_S = 45.0
"""Time to send the remaining records after the job has ended."""
SIGTERM_DRAIN_S = 3.0
"""Time to send the remaining records after SIGTERM. After SIGINT and SIGHUP, the agent has only LAST_ROUND_S."""
LAST_ROUND_S = 1.0
"""Time from SIGTERM to SIGKILL of the agent. It sends records once more in this time."""


class AgentKeeper:
    """Runs an agent while the ``with`` block runs. Does nothing without a collector.

    ``interrupted``: returns the number of the signal that ended the job, 0 if none did. After a signal, the agent has
    less time.
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
        """When the agent is restarted. None while it runs, or if it is not restarted."""

    def __enter__(self) -> "AgentKeeper":
        self._start()
        return self

    def restart_if_dead(self) -> None:
        """Restart an agent that died, after a pause that doubles up to a minute."""
        status = self._process.poll() if self._process is not None else None
        if status is None or status == REFUSED:
            return
        now_s = self._clock_s()
        if self._restart_s is None:
            self._restart_s = now_s + self._pauses.after_death(now_s)
        elif now_s >= self._restart_s:
            self._start_again()

    def __exit__(self, *_: object) -> None:
        """Wait, for a limited time, until the agent has sent the remaining records and has ended. An agent that waits
        for a restart starts at once. An agent that is killed is restarted. Without rank files, the agent is ended."""
        if self._process is not None and not self._has_ranks():
            self._end(self._process)
            return
        if self._restart_s is not None and self._drain_s():
            self._start_again()
        began_s = time.monotonic()
        while self._process is not None and time.monotonic() - began_s < self._drain_s():
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout=POLL_S)
                if status >= 0:
                    self._report_status(status)
                    return
                time.sleep(FIRST_PAUSE_S)
                self._start_again()
        if self._process is not None:
            self._give_up(self._process)

    def _drain_s(self) -> float:
        number = self._interrupted()
        if not number:
            return DRAIN_S
        return SIGTERM_DRAIN_S if number == signal.SIGTERM else 0.0

    def _report_status(self, status: int) -> None:
        if status:
            log = self._options.out / LOGS / LOG
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

    def _start_again(self) -> None:
        """Start the agent, or report why it cannot start. A host without memory for an agent can still train."""
        try:
            self._start()
        except OSError as error:
            now_s = self._clock_s()
            self._restart_s = now_s + self._pauses.after_death(now_s)
            log(f"the agent cannot start: {error}")

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
        with open_log(options.out, LOG) as log:
            # The address may contain a password, so it must not be visible in the list of processes.
            environment = {**child_environment(), "RANKSCOPE_COLLECTOR": options.collector}
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
