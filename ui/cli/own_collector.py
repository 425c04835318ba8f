"""Runs a collector with dashboard and alerts beside a driven job. Ranks start when it answers."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from telemetry.errors import RankscopeError, UnreachableError
from telemetry.printable import log, printable
from telemetry.process.child_process import RestartPauses, child_environment, python_module
from trainer.drive.folder import DriverPlace, JobFile, JobFolder
from trainer.output import LOGS, open_log

TOKEN = "token"
RULES = "alerts.toml"
LOG = "collector.log"
STORE = "store"
START_S = 120.0
"""Time limit for the start of the collector, which is slow on a loaded machine."""
AGAIN_S = 15.0
"""How long a start is repeated if the job had a collector before: the old one may still use the store and the port."""
POLL_S, STOP_S = 0.2, 10.0


@contextmanager
def own_collector(place: Path, job: JobFile, driver: DriverPlace) -> Iterator[Callable[[], None]]:
    """Run a collector during the ``with`` block. Yields the function that restarts it if it has died.

    Raises:
        UnreachableError: the collector cannot start.
    """
    collector = OwnCollector(place, job, driver)
    try:
        collector.start()
        yield collector.restart_if_dead
    finally:
        collector.end()


class OwnCollector:
    """The process of the collector. It is restarted if it dies, and ends with this process."""

    def __init__(self, place: Path, job: JobFile, driver: DriverPlace) -> None:
        assert job.options.collector is not None
        self._place, self._url, self._driver = place, job.options.collector, driver
        self._run_id = job.options.run_id
        self._log = place / LOGS / LOG
        self._process: subprocess.Popen[bytes] | None = None
        self._pauses = RestartPauses()
        self._restart_s = 0.0

    def start(self) -> None:
        """Start the collector, and return when it answers.

        Raises:
            UnreachableError: it does not answer. It has ended then, and the token of the driver is not left on disk.
        """
        until_s = time.monotonic() + (AGAIN_S if (self._place / STORE).exists() else 0.0)
        while reason := self._problem_of_start():
            if time.monotonic() >= until_s:
                JobFolder(self._place).remove(TOKEN, RULES)
                raise UnreachableError(
                    f"the collector of the job cannot start: {reason}",
                    hint=f"see {self._log}, or train without it: --no-own-collector",
                )
            time.sleep(POLL_S)
        log(f"dashboard on {self._url}/?run={self._run_id}")

    def restart_if_dead(self) -> None:
        """Start the collector if it does not run. A failed start is reported and repeated later. The ranks continue."""
        now_s = time.monotonic()
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return
            self._process = None
            self._restart_s = now_s + self._pauses.after_death(now_s)
            log(f"the collector ended with status {status}; see {self._log}")
        elif now_s >= self._restart_s:
            self._pauses.started(now_s)
            try:
                self._start()
            except (OSError, RankscopeError) as error:
                self._restart_s = now_s + self._pauses.after_death(now_s)
                log(f"the collector cannot start: {error}")

    def end(self) -> None:
        """Ask the collector to end. Kill it if it does not end within ``STOP_S``."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
            return
        self._process.kill()
        self._process.wait()

    def _problem_of_start(self) -> str:
        """Start the collector once, and wait until it answers. Returns why it does not; empty if it does."""
        try:
            size = self._log.stat().st_size if self._log.exists() else 0
            self._write_rules()
            process = self._start()
        except (OSError, RankscopeError) as error:
            return error.message if isinstance(error, RankscopeError) else str(error)
        self._pauses.started(time.monotonic())
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            if f"collector on {self._url}" in self._written_since(size):  # another server may answer at the port
                return ""
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(POLL_S)
                self._process = None
                return reason_in(self._written_since(size)) or f"it ended with status {status}"
        self.end()
        return f"it did not answer within {START_S:g} s"

    def _start(self) -> subprocess.Popen[bytes]:
        port = self._url.rpartition(":")[2]
        command = [
            *(*python_module("ui.cli"), "collect", "--store", f"embedded:{self._place / STORE}"),
            *("--port", port, "--alerts", str(JobFolder(self._place).path / RULES)),
        ]
        with open_log(self._place, LOG) as sink:
            self._process = subprocess.Popen(
                command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, env=child_environment(), process_group=0
            )
        return self._process

    def _written_since(self, size: int) -> str:
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")
        return ""

    def _write_rules(self) -> None:
        """Write the rules of the alerts. The driver is a hook in them."""
        folder = JobFolder(self._place)
        rules = (
            'every = "1s"\nstate = "alerts.sqlite"\n\n'
            f'[hooks.driver]\ntype = "webhook"\nurl = "{self._driver.url}/v1/findings"\n'
            f'token_file = "{folder.path / TOKEN}"\n\n'
            '[hooks.log]\ntype = "log"\n'
        )
        folder.write_text(TOKEN, self._driver.token)
        folder.write_text(RULES, rules)


def reason_in(words: str) -> str:
    """The last error message in the output of a command, or its last line if there is none."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return printable((errors or lines or [""])[-1])
