"""The ranks of one attempt on one node, with the agent that ships what they record."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from telemetry.agent.settings import StallSettings
from telemetry.agent.stall import Phase, RankSample, StallDetector
from telemetry.errors import RankscopeError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.state_page import LiveState
from trainer.agent import AgentKeeper
from trainer.checkpoint.claim import claimed
from trainer.checkpoint.rollback import roll_back
from trainer.data.tokens import Tokens
from trainer.drive.folder import SPOOL, JobFile, JobFolder
from trainer.drive.records import Ended, Order, Rollback
from trainer.rank import Seat
from trainer.rank_processes import RankProcesses
from trainer.run_options import ReplicaPlaces


class Attempt:
    """The ranks of one attempt on this node, with their agent.

    ``interrupted``: returns the number of the signal that ends this process, 0 if none does.

    Raises:
        FolderInUseError: ranks of an earlier attempt, or of another job, hold the folder of checkpoints.
        UsageError: the checkpoints belong to another training, or a rollback would leave none.
        OSError: no process can be started.
    """

    def __init__(
        self,
        job: JobFile,
        order: Order,
        folder: JobFolder,
        node: str,
        tokens: Tokens | None,
        replicas: ReplicaPlaces | None = None,
        interrupted: Callable[[], int] = lambda: 0,
    ) -> None:
        self.number = order.attempt
        fault = "none" if order.attempt else job.options.fault
        spool = folder.node(node) / SPOOL
        self._options = replace(job.options, attempt=order.attempt, spool=spool, fault=fault, replicas=replicas)
        self._ended: dict[int, Ended] = {}
        self._stall = StallDetector(StallSettings())
        self._stalled_s: float | None = None
        self._stopped_since_s: dict[int, float] = {}
        self._asked_to_save = False
        first = order.position * job.ranks_per_node
        size = job.train.parallel.topology.world_size
        init_method = order.rendezvous or f"file://{folder.rendezvous(order.attempt)}"
        seats = [
            Seat(rank=first + local, local_rank=local, world_size=size, init_method=init_method)
            for local in range(job.ranks_per_node)
        ]
        self._claim = ExitStack()
        try:
            if order.position == 0 and self._options.checkpoints is not None:
                self._claim.enter_context(claimed(self._options.checkpoints, job.train))
                self._roll_back(self._options.checkpoints, order.rollback)
            self.ranks = RankProcesses(seats, job.train, self._options, tokens)
            self._claim.callback(self.ranks.kill)  # before the folder is released; no effect on ranks that have ended
            self.agent = AgentKeeper(self._options, interrupted)
            self.agent.__enter__()
        except BaseException:
            self._claim.close()
            raise

    def _roll_back(self, checkpoints: Path, rollback: Rollback | None) -> None:
        """Take checkpoints out of use. Rank 0, which lists the checkpoints for all ranks, has not started yet."""
        if rollback is not None:
            assert self._options.run_id is not None
            roll_back(
                checkpoints,
                run_id=self._options.run_id,
                attempt=rollback.attempt,
                before_step=rollback.before_step,
            )

    def look_after(self) -> None:
        """Start the agent again if it died, show the warning about space for checkpoints, and note ranks that ended."""
        self.ranks.show_space_warning()
        if self.living:
            self.agent.restart_if_dead()
        now_s = time.monotonic()
        self._stopped_since_s = {rank: self._stopped_since_s.get(rank, now_s) for rank in self._stopped_ranks()}
        for rank, status in self.ranks.statuses.items():
            if rank not in self._ended:
                reason = self.ranks.failure(rank)
                self._ended[rank] = Ended(rank=rank, status=status, at_s=time.time(), reason=reason)
        if not self.living:
            self._claim.close()

    def save(self) -> None:
        """Ask the ranks, once, to save a checkpoint and end."""
        if not self._asked_to_save:
            self._asked_to_save = True
            self.ranks.ask_to_save()

    def end(self) -> None:
        """Kill the ranks without a checkpoint. The ranks on other nodes end too, so a checkpoint cannot be
        completed."""
        self.ranks.kill()
        self.look_after()

    @property
    def ended(self) -> tuple[Ended, ...]:
        return tuple(self._ended.values())

    @property
    def living(self) -> dict[int, int]:
        """Rank -> pid of the ranks that have not ended, as of the last :meth:`look_after`."""
        return {rank: pid for rank, pid in self.ranks.pids.items() if rank not in self._ended}

    @property
    def stopped_s(self) -> dict[int, float]:
        """Rank -> seconds since a signal, such as SIGSTOP, was first seen to have stopped its process."""
        return {rank: time.monotonic() - since_s for rank, since_s in self._stopped_since_s.items()}

    def _stopped_ranks(self) -> Iterator[int]:
        for rank, pid in self.living.items():
            with suppress(psutil.Error):
                if psutil.Process(pid).status() == psutil.STATUS_STOPPED:  # a tracer, such as gdb, has another status
                    yield rank

    def progress(self) -> tuple[int, float]:
        """The newest step of the ranks on this node, and the seconds since a stall was detected (0: no stall)."""
        states = list(self._states())
        samples = {rank: RankSample.of(state) for rank, state in states if not state.ended}
        stalled = self._stall.update(time.monotonic_ns(), samples) is Phase.STALLED
        self._stalled_s = (self._stalled_s or time.monotonic()) if stalled else None
        step = max((state.step for _, state in states), default=-1)
        return step, time.monotonic() - self._stalled_s if self._stalled_s else 0.0

    def _states(self) -> Iterator[tuple[int, LiveState]]:
        assert self._options.spool is not None
        for path in find_rank_dirs(self._options.spool, self._options.run_id, self.number):
            with suppress(RankscopeError, OSError, ValueError):
                yield int(path.name.removeprefix("rank-")), RankReader(path).live()
