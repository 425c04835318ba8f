"""A real training over the hosts of a cluster: eight gloo ranks, one agent per host, spans in the collector's store.

OUT/spool/host-2/RUN/0/rank-00004 ...   rank files of one host         OUT/logs/rank-00004.log, agent-host-2.log
"""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from telemetry.errors import UnreadableError
from telemetry.record.rank_identity import rank_folder
from telemetry.record.state_page import LiveState, read_state
from tests.deadline import until
from tests.forkserver import Program
from tests.netns.cluster import Cluster, enter_host
from tests.netns.collector import ENVIRONMENT, Collector
from tests.netns.zygote import Berth, Plan, Zygote, pids, statuses
from tests.trainer.jobs import rank_log, small_config
from trainer.config import TrainConfig
from trainer.run_options import RunOptions

ATTEMPT = 0
START_S = 300.0
STEP_S = 60.0
END_S = 20.0
MAX_TEXT_BYTES = 100_000
"""Limit of the training text, which is read for every job."""
LOOK_S = 0.05


def quick_config(num_steps: int, *, tp: int = 2) -> TrainConfig:
    """A very small model on dp2 x pp2 x tp, with two microbatches."""
    config = small_config(num_steps=num_steps, global_microbatches=4, dp=2, pp=2, tp=tp)
    return replace(config, data=replace(config.data, max_bytes=MAX_TEXT_BYTES))


class Job:
    """A job that starts at the beginning of the block. Its running processes are ended at the end of the block.

    Args:
        out: the folder of the job. It is created here.
        num_steps: for :func:`quick_config`, if no ``config`` is given.
        placement: the host of each rank. None: consecutive ranks share a host.
        collective_timeout_s: None: the default of torch.
        agent_options: such as ``("--stall-floor", "3")``.
        environment: added to this process's environment for the ranks and the agents.
        zygote: a zygote that also serves other jobs. None: a new one.
    """

    def __init__(
        self,
        cluster: Cluster,
        collector: Collector,
        out: Path,
        *,
        run_id: str = "job",
        num_steps: int = 10_000,
        config: TrainConfig | None = None,
        placement: Sequence[int] | None = None,
        collective_timeout_s: float | None = None,
        fault: str = "none",
        agent_options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        zygote: Zygote | None = None,
    ) -> None:
        self.cluster, self.collector, self.out, self.run_id = cluster, collector, out, run_id
        config = quick_config(num_steps) if config is None else config
        self.config = replace(config, collective_timeout_s=collective_timeout_s)
        self.options = RunOptions(out=out, run_id=run_id, attempt=ATTEMPT, fault=fault)
        self.placement = tuple(self._consecutive() if placement is None else placement)
        assert len(self.placement) == self.world_size, self.placement
        self._agent_options = tuple(agent_options)
        self._environment = {**ENVIRONMENT, **(environment or {})}
        self._zygote = zygote
        self.agents: dict[int, Program] = {}
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self.out.mkdir(parents=True)
        with ExitStack() as undo:
            zygote = self._zygote or undo.enter_context(Zygote(self.out))
            undo.callback(self._end_agents)
            undo.callback(self._end_ranks, zygote)
            zygote.start(self._plan())
            for host in sorted(set(self.placement)):
                self.agents[host] = self._start_agent(host)
            until(lambda: pids(self.out) or not zygote.running, seconds=START_S, every=LOOK_S, what="ranks")
            assert zygote.running, zygote.log.read_text()
            self._cleanup = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def world_size(self) -> int:
        return self.config.parallel.topology.world_size

    def ranks_on(self, host: int) -> list[int]:
        return [rank for rank, placed in enumerate(self.placement) if placed == host]

    def spool_of(self, host: int) -> Path:
        """Rank files of one host."""
        return self.out / "spool" / self.cluster.host_name(host)

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return pids(self.out)

    @property
    def statuses(self) -> dict[int, int]:
        """Exit status of each rank that has ended. A negative number is the signal that killed it."""
        return statuses(self.out)

    def page(self, rank: int) -> LiveState | None:
        """The live state of a rank. None before it has one."""
        spool = self.spool_of(self.placement[rank])
        with suppress(UnreadableError):
            return read_state(rank_folder(spool, self.run_id, ATTEMPT, rank))
        return None

    @property
    def step(self) -> int:
        """The last step that every rank has started. -1 before the first."""
        return min(-1 if page is None else page.step for page in map(self.page, range(self.world_size)))

    def wait_for_step(self, step: int, seconds: float = START_S) -> None:
        """Wait until every rank has started ``step``.

        Raises:
            AssertionError: a rank failed before (the message has the end of its log), or it took too long.
        """

        def reached() -> bool:
            failed = [rank for rank, status in self.statuses.items() if status]
            assert not failed, f"{self.statuses}\n{self.log(failed[0])[-2000:]}"
            return self.step >= step

        until(reached, seconds=seconds, every=LOOK_S, what=f"step {step}")

    def wait_for_steps(self, num_steps: int, seconds: float = START_S) -> None:
        """Wait until every rank has started ``num_steps`` more steps."""
        self.wait_for_step(self.step + num_steps, seconds)

    def wait(self, seconds: float = START_S) -> dict[int, int]:
        """Wait until every rank has ended by itself. Return :attr:`statuses`."""
        until(lambda: len(self.statuses) == self.world_size, seconds=seconds, every=LOOK_S, what="the end of the ranks")
        return self.statuses

    def wait_until_stored(self, seconds: float = START_S) -> dict[int, int]:
        """Wait until the agents have sent everything and ended. Return their exit statuses by host."""
        until(
            lambda: all(agent.poll() is not None for agent in self.agents.values()),
            seconds=seconds,
            every=LOOK_S,
            what="the end of the agents",
        )
        return {host: agent.wait() for host, agent in self.agents.items()}

    def log(self, rank: int) -> str:
        """The output of a rank so far."""
        return rank_log(self.out, rank)

    def agent_log(self, host: int) -> str:
        return self._agent_log(host).read_text()

    def _consecutive(self) -> list[int]:
        return [rank * self.cluster.num_hosts // self.world_size for rank in range(self.world_size)]

    def _plan(self) -> Plan:
        berths = tuple(
            Berth(
                namespace=self.cluster.namespace(host),
                host_name=self.cluster.host_name(host),
                local_rank=self.placement[:rank].count(host),
                spool=self.spool_of(host),
            )
            for rank, host in enumerate(self.placement)
        )
        return Plan(config=self.config, options=self.options, berths=berths, environment=self._environment)

    def _agent_log(self, host: int) -> Path:
        return self.out / "logs" / f"agent-{self.cluster.host_name(host)}.log"

    def _start_agent(self, host: int) -> Program:
        command = ["-m", "telemetry.agent", "--spool", str(self.spool_of(host)), "--run", self.run_id]
        command += ["--collector", self.collector.url, "--appear", str(START_S), *self._agent_options]
        environment = {**self._environment, "RANKSCOPE_HOST": self.cluster.host_name(host)}
        self._agent_log(host).parent.mkdir(exist_ok=True)
        enter = partial(enter_host, self.cluster.namespace(host))
        return Program(command, self._agent_log(host), enter, **environment)

    def _end_ranks(self, zygote: Zygote) -> None:
        with suppress(AssertionError):  # a zygote that has ended has killed its ranks
            zygote.end(self.out)
            until(lambda: len(self.statuses) == len(self.pids), seconds=END_S, every=LOOK_S, what="the ranks' end")

    def _end_agents(self) -> None:
        """Let each agent send a last time, then end it."""
        for agent in self.agents.values():
            agent.terminate()
        deadline = time.monotonic() + END_S
        for agent in self.agents.values():
            try:
                agent.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
