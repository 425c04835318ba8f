"""Starts the driver and, if all nodes are on this machine, an executor for each node. Restarts those that end.

starter ---- fork ----> driver            ends with the starter
         |-- fork ----> executor node-0   outlives the starter, at most for ten minutes
         '-- fork ----> executor node-1 ...

The starter holds the socket of the driver, so no other program can take its address while a driver is restarted.

The starter does what systemd does on the nodes of a cluster. If it is killed, the ranks train on. The same command
again finds the executors by the locks in the folder of the job, and starts only what is missing.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import NoReturn

from telemetry.collector.connections import BoundedListener
from telemetry.errors import RankscopeError, UsageError
from telemetry.printable import write_lines
from telemetry.process.child_process import RestartPauses, tie_to_parent
from telemetry.process.signals import LIMIT_S, on_first_ending
from telemetry.user_errors import CRASH_STATUS, user_error
from trainer.data.batches import check_data
from trainer.data.tokens import Tokens, load_tokens
from trainer.drive.driver import LOOPBACK, STATUS_OF, open_driver_place, run_driver
from trainer.drive.executor import run_executor
from trainer.drive.folder import DRIVER, JOB, STATE, DriverPlace, JobFile, JobFolder, held_lock, is_deleted
from trainer.drive.job import Job, Phase
from trainer.launch import ProgressLine
from trainer.output import LOGS
from trainer.rank_processes import SAVE_S

END_S = LIMIT_S + SAVE_S + LIMIT_S
"""Time limit for the end of the job after a signal. The job saves a checkpoint in this time."""
LOOK_EVERY_S = 0.25
EXECUTOR_EVERY_S = 2.0
"""Time between two tries to start the executor of a node."""
FIRST_PAUSE_S = 0.5
Beside = Callable[[DriverPlace], AbstractContextManager[Callable[[], None]]]


def node_names(job: JobFile) -> list[str]:
    """Names of the nodes on this machine."""
    if job.drive.listen:
        return []
    return [f"node-{number}" for number in range(job.drive.num_nodes + job.drive.num_spares)]


def drive_here(job: JobFile, beside: Beside | None = None) -> int:
    """Drive ``job`` to its end. Returns the exit status of the driver.

    Args:
        beside: starts what runs beside the job, such as a collector, before the driver and the nodes start. It gets the
            address of the driver, and yields a function that is called four times a second.

    Raises:
        RankscopeError: what runs beside the job cannot start.
        UsageError: another process drives a job in this folder, the folder belongs to another job, or it was deleted.
        UnreadableError: the state of an earlier driver cannot be read.
        OSError: the folder of a node cannot be used.
    """
    folder = JobFolder(job.options.out)
    with ExitStack() as opened:
        folder.make()
        lock = opened.enter_context(held_lock(folder.path))
        if lock is None:
            raise UsageError(
                f"another process drives the job in {job.options.out}", hint="use another --out for a new job"
            )
        folder.read(STATE, Job)  # raises before a node starts if no driver could read the state,
        folder.append([])  # if decisions cannot be written,
        for node in node_names(job):  # or if the folder of a node cannot be used
            with held_lock(folder.node(node)):
                pass
        tokens = load_tokens(job.train.data, vocab_size=job.train.model.vocab_size)
        check_data(tokens, job.train)
        listener, place = open_driver_place(folder, job.drive.listen or LOOPBACK)
        opened.enter_context(listener)
        look_after_beside = opened.enter_context(_started(beside, place, folder)) if beside else None
        folder.write(JOB, replace(job, started_ns=time.time_ns()))
        starter = Starter(job, lock, listener, tokens)
        line = ProgressLine(job.options.out, job.train.num_steps, resumes=True)
        on_first_ending(starter.interrupt, limit_s=END_S, for_all=True)
        while (status := starter.look_after()) is None:
            line.update()
            if look_after_beside is not None:
                look_after_beside()
            time.sleep(LOOK_EVERY_S)
        line.finish()
        if status == STATUS_OF[Phase.GAVE_UP]:
            write_lines(f"the logs of the ranks are in {job.options.out / LOGS}")
        return status


@contextmanager
def _started(beside: Beside, place: DriverPlace, folder: JobFolder) -> Iterator[Callable[[], None]]:
    """Start what runs beside the job. If that fails and the job is new, remove the address and token of the driver."""
    with ExitStack() as opened:
        try:
            look_after = opened.enter_context(beside(place))
        except BaseException:
            if folder.read(JOB, JobFile) is None:
                folder.remove(DRIVER)
            raise
        yield look_after


class Starter:
    """Starts the processes of the job on this machine, and restarts those that end."""

    def __init__(self, job: JobFile, lock: int, listener: BoundedListener, tokens: Tokens | None) -> None:
        """``lock``: descriptor of the lock of the folder; ``listener``: for the driver."""
        self._job, self._lock, self._listener, self._tokens = job, lock, listener, tokens
        self._folder = JobFolder(job.options.out)
        self._executors: dict[str, int] = dict.fromkeys(node_names(job), 0)
        """Node -> pid of its executor; 0 if this process has not started it."""
        self._left: set[str] = set()
        """Nodes whose executor ended because the driver ordered it."""
        self._tried_s: dict[str, float] = {}
        self._complaints: set[str] = set()
        self._driver = 0
        self._pauses = RestartPauses(first_s=FIRST_PAUSE_S)
        self._restart_s = 0.0
        self._interrupted = 0
        """The signal that ends the job; 0 if none does."""

    def interrupt(self, number: int) -> None:
        """Let the driver end the job. A signal handler calls this."""
        self._interrupted = number

    def look_after(self) -> int | None:
        """Start the processes that are missing. Returns the exit status of the driver if the job is over, else None.

        Raises:
            UsageError: the folder of the job was deleted.
        """
        if is_deleted(self._lock):
            raise UsageError(
                f"the folder {self._folder.out} was deleted while its job ran; its processes end",
                hint="do not delete the folder of a running job; end the command first",
            )
        now_s = time.monotonic()
        if (status := self._look_after_driver(now_s)) is not None:
            return status
        for node in self._executors:
            try:
                self._look_after_executor(node, now_s)
            except (OSError, RankscopeError) as error:  # the other nodes train on
                self._complain(f"cannot start the executor of {node}: {user_error(error) or error}")
        return None

    def _complain(self, problem: str) -> None:
        """Report a problem once. The start is tried again and again."""
        if problem not in self._complaints:
            self._complaints.add(problem)
            write_lines(problem)

    def _look_after_driver(self, now_s: float) -> int | None:
        if self._driver:
            status = _ended(self._driver)
            if status is None:
                if self._interrupted:  # again and again: a driver may just have been replaced
                    os.kill(self._driver, self._interrupted)
                return None
            self._driver = 0
            if status >= 0 and status != CRASH_STATUS:
                return status
            self._restart_s = now_s + self._pauses.after_death(now_s)
            write_lines(f"the driver ended with status {status}: another one takes over")
        elif now_s >= self._restart_s:
            self._pauses.started(now_s)
            self._driver = self._fork(lambda: run_driver(self._job.options.out, self._listener), is_executor=False)
            if not self._driver:
                self._restart_s = now_s + self._pauses.after_death(now_s)
        return None

    def _look_after_executor(self, node: str, now_s: float) -> None:
        if self._executors[node]:
            status = _ended(self._executors[node])
            if status is None:
                return
            self._executors[node] = 0
            if status == 0:
                self._left.add(node)
        if node in self._left or now_s - self._tried_s.get(node, -EXECUTOR_EVERY_S) < EXECUTOR_EVERY_S:
            return
        self._tried_s[node] = now_s
        with held_lock(self._folder.node(node)) as lock:
            is_free = lock is not None  # otherwise an executor of an earlier starter lives
        if is_free:
            run = partial(run_executor, self._job.options.out, node, tokens=self._tokens)
            self._executors[node] = self._fork(run, is_executor=True)

    def _fork(self, run: Callable[[], int], *, is_executor: bool) -> int:
        """Start a child and return its pid; 0 if no child can be started now, for example for lack of memory."""
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            write_lines(f"cannot start {'an executor' if is_executor else 'the driver'}: {error}")
            return 0
        if not pid:
            self._become(run, parent, is_executor=is_executor)
        return pid

    def _become(self, run: Callable[[], int], parent: int, *, is_executor: bool) -> NoReturn:
        """Call ``run`` in the child, and end the child. Never returns."""
        status = CRASH_STATUS
        try:
            os.close(self._lock)
            os.setsid()
            if is_executor:
                self._listener.close()  # it outlives the driver
            else:
                tie_to_parent(parent)
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # until the driver handles it; it is sent again
            status = run()
        except RankscopeError as error:
            write_lines(str(error))
            status = error.exit_status
        except BaseException:
            write_lines(traceback.format_exc())
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)


def _ended(pid: int) -> int | None:
    """The exit status of a child; -n if signal n killed it, None while it lives."""
    found, code = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(code) if found else None
