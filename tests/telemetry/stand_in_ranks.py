"""Ranks of a job under NCCL, without NCCL. Each records a few steps, makes no more progress, and publishes a real dump.

SERVE    the rank serves a worker socket, as torch with CUDA does: its dump as ``dump_nccl_trace_json``, and no
         ``fr_trace_json``
WRITE    the rank serves no socket. When the file ``time-is-up`` appears in the spool, it writes its dump, as torch does
         on a timeout, and aborts

python -m tests.telemetry.stand_in_ranks SPOOL DUMPS MESH SERVE|WRITE
"""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import telemetry
from telemetry.evidence.flight_recorder import NCCL
from telemetry.files.plain_pickle import load_plain
from telemetry.process.child_process import tie_to_parent
from telemetry.record.worker_server import META_KEY
from telemetry.topology import Topology
from tests.deadline import until
from tests.telemetry.worker_socket import serve_handlers

ROOT = Path(__file__).parents[2]
RUN = "stand-in"
STEPS = 6
"""Number of steps before the job makes no more progress."""
TIME_IS_UP = "time-is-up"
PREFIX = "written_rank_"


def main(spool: Path, dumps: Path, mesh: str, how: str) -> None:
    topology, parent = Topology.parse(mesh), os.getpid()
    for rank in range(topology.world_size):
        if os.fork() == 0:
            tie_to_parent(parent)
            _stand(spool, dumps / f"_dump_{rank}", topology, rank, how)
    threading.Event().wait()


def _stand(spool: Path, dump: Path, topology: Topology, rank: int, how: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with (spool / f"rank-{rank}.log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    meta = {"device": "cuda"}
    if how == "SERVE":
        path = spool / f"worker-{rank}"
        serve_handlers(path, {NCCL: as_nccl_tells(dump.read_bytes()).encode(), "dump_traceback": b""})
        meta[META_KEY] = str(path)
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = str(spool / PREFIX)
    telemetry.start(RUN, topology=topology, rank=rank, local_rank=rank, attempt=0, spool=spool, agent=False, meta=meta)
    pause = threading.Event()
    for number in range(STEPS):
        with telemetry.step(number):
            pause.wait(0.05)
    with telemetry.step(STEPS):
        until(lambda: (spool / TIME_IS_UP).exists(), seconds=600)
        (spool / f"{PREFIX}{rank}").write_bytes(dump.read_bytes())
        os.abort()


def as_nccl_tells(dump: bytes) -> str:
    """A pickled dump as the JSON of the same recorder. In the JSON, the counts of a group are text."""
    found: dict[str, Any] = load_plain(dump)
    status = {name: {key: str(count) for key, count in one.items()} for name, one in found["pg_status"].items()}
    return json.dumps({**found, "pg_status": status})


@contextmanager
def stand_in_job(spool: Path, dumps: Path, mesh: str, how: str) -> Iterator[None]:
    """Run the job during the block, which starts when all ranks record. No process is left afterwards."""
    spool.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.telemetry.stand_in_ranks", str(spool), str(dumps), mesh, how]
    num_ranks = Topology.parse(mesh).world_size
    with (spool / "launcher.log").open("wb") as log:
        job = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        until(lambda: len(list(spool.glob(f"{RUN}/0/rank-*/meta.json"))) == num_ranks, seconds=60, what="all record")
        yield
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4])
