"""The process of the zygote (see ``zygote.py``). It waits for commands and for the end of ranks."""

import gc
import json
import os
import pickle
import selectors
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch.multiprocessing

from tests.netns.cluster import DATA_LINK, enter_namespace
from tests.netns.zygote import ENDED, PIDS, PLAN, Plan
from trainer.data.tokens import Tokens, load_tokens
from trainer.rank import FAILED, Seat, run_and_exit
from trainer.rank_processes import log_path

STDIN = 0
CHUNK_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A running rank, as its parent knows it."""

    pid: int
    rank: int
    out: Path


class Nursery:
    """All running ranks of all jobs."""

    def __init__(self) -> None:
        self._ready = selectors.DefaultSelector()
        self._ready.register(STDIN, selectors.EVENT_READ)
        self._words = b""

    def run(self) -> None:
        """Serve until the test process ends. Then kill every rank."""
        told = True
        while told:
            for key, _ in self._ready.select():
                if isinstance(key.data, Forked):
                    self._note_end(key.fd, key.data)
                else:
                    told = self._listen()
        self._kill(self._forked())

    def _listen(self) -> bool:
        """Execute the commands that arrived. Return whether the test process is still connected."""
        heard = os.read(STDIN, CHUNK_BYTES)
        *lines, self._words = (self._words + heard).split(b"\n")
        for line in lines:
            word, _, out = line.decode().partition(" ")
            if word == "start":
                self._start(Path(out))
            else:
                self._kill([one for one in self._forked() if one.out == Path(out)])
        return bool(heard)

    def _start(self, out: Path) -> None:
        plan: Plan = pickle.loads((out / PLAN).read_bytes())
        (out / "logs").mkdir(exist_ok=True)
        tokens = load_tokens(plan.config.data, vocab_size=plan.config.model.vocab_size)
        zygote, pids = os.getpid(), []
        for rank in range(len(plan.berths)):
            pid = os.fork()
            if pid == 0:
                _be_rank(plan, rank, tokens, zygote)
            self._ready.register(os.pidfd_open(pid), selectors.EVENT_READ, Forked(pid=pid, rank=rank, out=out))
            pids.append(pid)
        new = out / (PIDS + ".new")
        new.write_text(json.dumps(pids))
        new.rename(out / PIDS)

    def _forked(self) -> list[Forked]:
        return [key.data for key in self._ready.get_map().values() if isinstance(key.data, Forked)]

    def _kill(self, ranks: list[Forked]) -> None:
        """Kill ranks. Their ends are written when they are reaped."""
        for one in ranks:
            os.kill(one.pid, signal.SIGKILL)  # not reaped yet, so the pid still belongs to it

    def _note_end(self, pidfd: int, one: Forked) -> None:
        self._ready.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(one.pid, 0)
        told = {"rank": one.rank, "status": os.waitstatus_to_exitcode(status), "at_ns": time.time_ns()}
        with suppress(FileNotFoundError), (one.out / ENDED).open("a") as ended:
            ended.write(json.dumps(told) + "\n")


def _be_rank(plan: Plan, rank: int, tokens: Tokens, zygote: int) -> None:
    """The whole life of a forked child."""
    status = FAILED
    try:
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
        if os.getppid() == zygote:
            _settle(plan, rank)
            _train(plan, rank, tokens)
            status = 0
    finally:
        os._exit(status)


def _settle(plan: Plan, rank: int) -> None:
    """Move the rank to its host, and open its log."""
    berth = plan.berths[rank]
    with Path(os.devnull).open("rb") as nothing, log_path(plan.options.out, rank).open("ab", buffering=0) as log:
        os.dup2(nothing.fileno(), STDIN)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    enter_namespace(berth.namespace)
    os.environ.update(plan.environment, RANKSCOPE_HOST=berth.host_name, GLOO_SOCKET_IFNAME=DATA_LINK)


def _train(plan: Plan, rank: int, tokens: Tokens) -> None:
    berth = plan.berths[rank]
    seat = Seat(
        rank=rank,
        local_rank=berth.local_rank,
        world_size=len(plan.berths),
        init_method=f"file://{plan.options.out / 'rendezvous'}",
    )
    run_and_exit(seat, plan.config, replace(plan.options, spool=berth.spool), tokens)


def serve(commands: str) -> None:
    """The zygote. ``commands``: path of the pipe."""
    pipe = os.open(commands, os.O_RDONLY)
    os.dup2(pipe, STDIN)
    os.close(pipe)
    gc.freeze()  # ranks share the memory of loaded modules
    Nursery().run()
