"""The executor of one node: does what the driver orders, and reports the whole state of the node.

executor --- Report ---> driver      twice a second, and as soon as a rank ends
         <-- Order ----
    |--- ranks of the newest attempt        end with the executor, even with kill -9
    |--- agent, if there is a collector
    |--- keeper of replicas, with --replicas
    '--- command of the node checks

Without an answer from the driver the ranks train on. An executor outlives the driver. It ends when the driver orders
it, when no driver has answered for ten minutes, or at once when the folder of the job is deleted. A node can also be
separated from a driver that lives:

executor --x--> driver: node lost, attempt n + 1 --> state.json
    '--- reads state.json, if it has the storage of the job: kills the ranks of attempt n
"""

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from telemetry.errors import RankscopeError, UsageError
from telemetry.printable import write_lines
from telemetry.process.child_process import birth_of
from telemetry.process.signals import SIGNAL_BASE, on_first_ending
from telemetry.user_errors import user_error
from trainer.agent import AgentKeeper
from trainer.checkpoint.claim import FolderInUseError
from trainer.checkpoint.rollback import NoCheckpointLeftError
from trainer.data.tokens import Tokens, load_tokens
from trainer.drive.attempt import Attempt
from trainer.drive.check_keeper import CheckKeeper
from trainer.drive.driver_client import DriverClient, FreePort, interface_of
from trainer.drive.earlier_ranks import living, recorded_ranks
from trainer.drive.folder import JOB, SPOOL, STATE, JobFile, JobFolder, held_lock, is_deleted
from trainer.drive.job import Job
from trainer.drive.records import Order, Report, Work
from trainer.replicas.keeper_process import KeeperProcess
from trainer.run_options import ReplicaPlaces

EVERY_S = 0.5
ORPHAN_S = 600.0
"""Without an answer for this time the executor saves a checkpoint, ends its ranks, and ends itself."""
CLAIM_S = 60.0
"""How long an executor waits for the folder of checkpoints, which ranks of a separated node may still hold."""
LOCKED = 3
"""Exit status of an executor whose node has one already."""


class Executor:
    """Runs one node, on the main thread of a process that has torch and no other threads.

    ``lock``: descriptor of the lock of the node.
    """

    def __init__(
        self,
        folder: JobFolder,
        job: JobFile,
        node: str,
        *,
        address: str,
        tokens: Tokens | None,
        lock: int | None = None,
    ) -> None:
        self._lock = lock
        self._folder, self._job, self._node, self._tokens = folder, job, node, tokens
        self._life = birth_of(os.getpid()) + f" {os.getpid()}"
        self._address = address
        self._port = FreePort(address)
        self._attempt: Attempt | None = None
        self._keeper = KeeperProcess(address) if job.drive.replicas else None
        self._agents: list[AgentKeeper] = []
        """Agents of earlier attempts. Each ends when all records of its attempt are stored."""
        self._error: Exception | None = None
        """Why the ranks of the newest attempt were not started."""
        self._failed_attempt = -1
        self._claim_since_s: float | None = None
        """When the folder of checkpoints was first found in use. None if it is not in use."""
        self._checks = CheckKeeper(folder.node(node), node, self._port)
        self._earlier_ranks = recorded_ranks(folder.node(node) / SPOOL, job.options.run_id)
        """Ranks of an earlier executor of this node that still live. The kernel kills them when that executor ends."""
        self._driver = DriverClient(folder)
        self.interrupted = 0
        """The signal that ended this executor; 0 if none did."""

    def run(self) -> None:
        """Run until the driver or a signal ends this executor, no driver answers, or the job's folder is deleted."""
        try:
            order = None
            while not self.interrupted and not self._is_deleted:
                answer = self._driver.exchange(self._report())
                order = answer or order
                if (order is not None and order.work is Work.LEAVE) or self._driver.silent_s > ORPHAN_S:
                    break
                if answer is None:
                    self._end_if_replaced()
                if order is not None:
                    self._mind_keeper(order)
                    self._obey(order)
                self._pause()
            self._leave()
        finally:
            if self._attempt is not None:
                self._attempt.ranks.kill()
            self._checks.end()
            if self._keeper is not None:
                self._keeper.end()

    def interrupt(self, number: int) -> None:
        """End without a checkpoint. Records get a few seconds to be sent. A signal handler calls this."""
        self.interrupted = number

    @property
    def _is_deleted(self) -> bool:
        return self._lock is not None and is_deleted(self._lock)

    def _report(self) -> Report:
        step, stalled_s = self._attempt.progress() if self._attempt else (-1, 0.0)
        return Report(
            node=self._node,
            life=self._life,
            address=self._address,
            port=self._port.number,
            attempt=max(self._attempt.number if self._attempt else -1, self._failed_attempt),
            pids=self._attempt.living if self._attempt else {},
            stopped_s=self._attempt.stopped_s if self._attempt else {},
            ended=self._attempt.ended if self._attempt else (),
            error=str(user_error(self._error) or self._error) if self._error else "",
            no_checkpoint=isinstance(self._error, NoCheckpointLeftError),
            checkpoint_problem=self._attempt.ranks.checkpoint_problem if self._attempt else "",
            step=step,
            stalled_s=stalled_s,
            keeper=self._keeper.url if self._keeper else "",
            check=self._checks.checked,
            pairs=self._checks.paired,
        )

    def _obey(self, order: Order) -> None:
        """Carry out ``order``. Ranks and checks never run at the same time: old ones end before new ones start."""
        attempt = self._attempt
        is_other = attempt is not None and attempt.number != order.attempt
        if attempt is not None and attempt.living and (is_other or order.work in (Work.IDLE, Work.STOP, Work.CHECK)):
            attempt.end()
        self._mind_checks(order)
        if order.work is Work.TRAIN and (attempt is None or is_other) and order.attempt != self._failed_attempt:
            self._start(order)
        elif order.work is Work.SAVE and attempt is not None and not is_other:
            attempt.save()

    def _mind_checks(self, order: Order) -> None:
        """Start or end the checks. When a check is ordered, the ranks of this executor have ended. No check starts
        while ranks of an earlier executor live."""
        self._earlier_ranks = living(self._earlier_ranks)
        self._checks.obey(order, may_start=not self._earlier_ranks)

    def _end_if_replaced(self) -> None:
        """Kill the ranks if the state of the driver on disk shows that the job continues without this node. Called when
        the driver does not answer."""
        attempt = self._attempt
        if attempt is None or not attempt.living:
            return
        with suppress(RankscopeError, OSError):
            state = self._folder.read(STATE, Job)
            if state is not None and state.has_replaced(self._node, attempt.number):
                write_lines(
                    f"executor of {self._node}: the job continues without this node. The ranks of this node are killed"
                )
                attempt.end()

    def _start(self, order: Order) -> None:
        if self._attempt is not None:
            self._attempt.end()
            self._agents.append(self._attempt.agent)
            self._attempt = None
        self._error = None
        self._port.release()
        try:
            self._attempt = Attempt(
                self._job,
                order,
                self._folder,
                self._node,
                self._tokens,
                self._replica_places(order),
                lambda: self.interrupted,
            )
            self._claim_since_s = None
        except FolderInUseError as error:
            self._claim_since_s = self._claim_since_s or time.monotonic()
            if time.monotonic() - self._claim_since_s > CLAIM_S:
                self._fail(order, error)
        except (OSError, RankscopeError) as error:
            self._fail(order, error)

    def _mind_keeper(self, order: Order) -> None:
        """Restart the keeper of replicas if it died. Free its memory if that is ordered."""
        if self._keeper is None:
            return
        if order.replicas is not None and order.replicas.forget:
            self._keeper.forget()
        if self._driver.token:
            self._keeper.look_after(self._driver.token)

    def _replica_places(self, order: Order) -> ReplicaPlaces | None:
        if self._keeper is None or order.replicas is None:
            return None
        self._keeper.may_hold_parts = True
        found = order.replicas
        return ReplicaPlaces(
            own=self._keeper.url,
            neighbour=found.neighbour,
            keepers=found.keepers,
            rollback=order.rollback,
            token=self._driver.token,
        )

    def _fail(self, order: Order, error: Exception) -> None:
        self._port.take()
        self._claim_since_s = None
        self._error, self._failed_attempt = error, order.attempt

    def _pause(self) -> None:
        if self._attempt is not None and self._attempt.living:
            self._attempt.ranks.wait(EVERY_S)
        else:
            time.sleep(EVERY_S)
        if self._attempt is not None:
            self._attempt.look_after()
            if not self._attempt.living:
                self._port.take()

    def _leave(self) -> None:
        is_deleted = self._is_deleted
        if is_deleted:
            write_lines(f"executor of {self._node}: the folder {self._folder.out} was deleted; its ranks are killed")
        elif self._driver.silent_s > ORPHAN_S:
            write_lines(f"executor of {self._node}: no driver answered for {ORPHAN_S:g} s")
        if self._attempt is not None:
            if self._attempt.living and not self.interrupted and not is_deleted:
                self._attempt.ranks.let_save(lambda: self.interrupted)
            self._attempt.end()
            self._agents.append(self._attempt.agent)
        for agent in self._agents:
            agent.__exit__()
        self._driver.exchange(replace(self._report(), leaving=True))


def run_node(out: Path, node: str, *, address: str) -> int:
    """Run the executor of a node on another host than the driver. The data of the job is read on this host.

    Raises:
        UsageError: there is no job in ``out``, or this host does not have ``address``.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface_of(address)
    job = JobFolder(out).read(JOB, JobFile)
    tokens = None if job is None else load_tokens(job.train.data, vocab_size=job.train.model.vocab_size)
    return run_executor(out, node, address=address, tokens=tokens)


def run_executor(out: Path, node: str, *, address: str = "", tokens: Tokens | None = None) -> int:
    """Run the executor of ``node`` for the job in ``out``. Returns 128 + n if signal n ended it, 3 if the node has an
    executor already, else 0.

    Raises:
        UsageError: there is no job in ``out``.
    """
    folder = JobFolder(out)
    job = folder.read(JOB, JobFile) if folder.path.is_dir() else None
    if job is None:
        raise UsageError(
            f"no job in {out}", hint="start the driver first, with the same folder: rankscope drive --out DIR"
        )
    os.environ["RANKSCOPE_HOST"] = node
    if not address:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with held_lock(folder.node(node)) as lock:
        if lock is None:
            return LOCKED
        executor = Executor(folder, job, node, address=address, tokens=tokens, lock=lock)
        on_first_ending(executor.interrupt)
        executor.run()
        return SIGNAL_BASE + executor.interrupted if executor.interrupted else 0
