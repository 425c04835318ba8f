"""A small job under gloo. One of its ranks stops, loops, holds the interpreter or fails at a step."""

import ctypes
import json
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import Topology
from tests.deadline import until
from tests.trainer.launchers import start_forked

STEP_S = 0.05
RUN = {"run_id": "job", "attempt": 0}


def loop_for_ever() -> None:
    while True:
        pass


def hold_the_interpreter() -> None:
    library = ctypes.PyDLL(None)
    while True:
        library.pause()


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


FAULTS = {"loop": loop_for_ever, "gil": hold_the_interpreter, "stop": stop_itself, "fail": fail}


def launch(spool: str, num_ranks: str, rank: str, step: str, how: str) -> None:
    """Start the ranks. ``how``: the key in ``FAULTS`` of what the rank does at the step."""
    torch.multiprocessing.start_processes(
        _run_rank,
        args=(Path(spool), int(num_ranks), int(rank), int(step), how),
        nprocs=int(num_ranks),
        start_method="fork",
    )


def _run_rank(rank: int, spool: Path, num_ranks: int, odd_rank: int, odd_step: int, how: str) -> None:
    torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell that runs the tests may ignore SIGINT
    with (spool / f"rank-{rank}.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    torch.set_num_threads(1)
    topology = Topology(dp=num_ranks)
    telemetry.start("job", topology=topology, rank=rank, attempt=0, spool=spool, agent=False)
    backend = register_traced_backend("gloo")
    dist.init_process_group(backend, init_method=f"file://{spool}/meet", rank=rank, world_size=num_ranks)
    try:
        _step_on(rank, odd_rank, odd_step, how)
    except BaseException:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a peer may end before this rank gets the signal
        traceback.print_exc()
        telemetry.stop()
        os._exit(1)


def _step_on(rank: int, odd_rank: int, odd_step: int, how: str) -> None:
    number = 0
    while True:
        with telemetry.step(number):
            threading.Event().wait(STEP_S)
            print(f"step {number} of rank {rank}", flush=True)
            if rank == odd_rank and number == odd_step:
                print("about to go wrong", flush=True)
                with telemetry.span("data-load"):
                    FAULTS[how]()
            dist.all_reduce(torch.ones(4))
        number += 1


@contextmanager
def standing_job(spool: Path, how: str, *, num_ranks: int = 3, rank: int = 1, step: int = 30) -> Iterator[list[int]]:
    """The pids of the ranks of a job, when all of them record. No process is left afterwards."""
    spool.mkdir(parents=True, exist_ok=True)
    arguments = (str(spool), str(num_ranks), str(rank), str(step), how)
    job = start_forked(f"{__name__}:launch", *arguments, log=spool / "launcher.log", GLOO_SOCKET_IFNAME="lo")
    pids: list[int] = []
    try:
        until(lambda: len(pids_of(spool)) == num_ranks, seconds=60, what="all ranks record")
        pids = pids_of(spool)
        yield pids
    finally:
        job.kill()
        job.wait()
        for pid in pids:
            until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), what=f"end of {pid}")


def pids_of(spool: Path) -> list[int]:
    found = sorted(spool.glob("job/0/rank-*/meta.json"))
    return [json.loads(path.read_text())["pid"] for path in found]
