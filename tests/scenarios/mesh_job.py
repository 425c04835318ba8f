"""One training on a mesh: eight gloo ranks that learn the mesh, a fault inside one of them, and an agent.

launcher -- 8 ranks, the fault inside one        both forked from a process that has loaded torch
agent ----> collector ----> store                see mesh_trials.py
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import thread_time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.process.child_process import end_with_parent
from telemetry.record.collectives.process_group import register_traced_backend
from tests.telemetry.grid_training import CONTEXT, EXPERTS, MEGATRON, TORCHTITAN, Job, device_mesh, steps

MESHES = {"torchtitan": TORCHTITAN, "megatron": MEGATRON, "context": CONTEXT, "experts": EXPERTS}
SLOW, STOPPED, LOOPING, HEALTHY = "slowed", "stopped (SIGSTOP)", "endless loop", "healthy"
NUM_RANKS = 8
FIRST_STEP = 8
"""The usual first step with the fault."""
FIRED = "fired"
SIZE = 48
"""Of the matrices that a slow rank multiplies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training, and its fault."""

    mesh: str
    """One of ``MESHES``."""
    kind: str
    rank: int
    """The rank at fault; -1 in a healthy training."""
    factor: float
    """How many times as long as before the slow rank works in a forward."""
    num_steps: int
    out: Path
    first_step: int = FIRST_STEP
    """The first step with the fault."""

    @property
    def run_id(self) -> str:
        return self.out.name

    @property
    def spool(self) -> Path:
        return self.out / "spool"

    @property
    def job(self) -> Job:
        return MESHES[self.mesh]

    @property
    def guilty(self) -> tuple[int, ...]:
        """Exactly the ranks that must be named."""
        return () if self.kind == HEALTHY else (self.rank,)

    def fired_at_s(self) -> float:
        """Wall clock of the fault; 0 before the fault."""
        path = self.out / FIRED
        return path.stat().st_mtime if path.exists() else 0.0


class Fault:
    """The context of every forward of the rank at fault."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._matrix = torch.randn(SIZE, SIZE) / SIZE
        self.step = 0
        """The current step."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self.step < self._trial.first_step:
            yield
            return
        if self.step == self._trial.first_step:
            (self._trial.out / FIRED).touch()
        if self._trial.kind == STOPPED:
            os.kill(os.getpid(), signal.SIGSTOP)
        while self._trial.kind == LOOPING:
            pass
        began = thread_time()
        yield
        self._multiply((thread_time() - began) * (self._trial.factor - 1))

    def _multiply(self, seconds: float) -> None:
        """Use the processor for this time."""
        end = thread_time() + seconds
        while thread_time() < end:
            self._matrix @ self._matrix


def launch(trial: Trial) -> None:
    """Train to the end, or without end."""
    torch.multiprocessing.start_processes(_train_rank, args=(trial,), nprocs=NUM_RANKS, start_method="fork")


def _train_rank(rank: int, trial: Trial) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(NUM_RANKS))
    telemetry.start(trial.run_id, spool=trial.spool, agent=False)
    dist.init_process_group(
        register_traced_backend("gloo"), init_method=f"file://{trial.out}/meet", rank=rank, world_size=NUM_RANKS
    )
    fault = Fault(trial)
    around = fault if rank == trial.rank else nullcontext
    for number, step in enumerate(steps(trial.job, device_mesh(trial.job, rank), trial.num_steps, around)):
        fault.step = number
        step()
    dist.destroy_process_group()
    telemetry.stop()


def in_own_session(log: Path, role: Callable[..., None], *arguments: Any) -> None:
    """Call ``role`` in a forked child that has its own session, so that all its processes can be killed.

    Its output goes to ``log``. It ends with the process that it was forked from.
    """
    end_with_parent(os.getppid(), signal.SIGKILL)
    os.setsid()
    with log.open("wb") as sink:
        for number in (1, 2):
            os.dup2(sink.fileno(), number)
    role(*arguments)
