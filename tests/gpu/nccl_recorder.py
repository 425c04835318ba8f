"""The flight recorders of a live rank under NCCL: which handlers its torch has, and whether they answer in time."""

import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from telemetry.evidence.flight_recorder import HANDLERS, NCCL, ask_flight_recorder
from telemetry.evidence.worker_client import ask_handler, handler_names
from telemetry.records import RankIdentity
from telemetry.topology import Topology
from tests.gpu.outcome import say
from tests.gpu.ranks import ranks_at_work, ready

BUSY_CYCLES = 20_000_000_000
"""Some seconds: the recorder is asked while the device works."""


def main() -> None:
    topology = Topology(dp=torch.cuda.device_count())
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:  # noqa: SIM117 - one folder, one job
        with ranks_at_work(_work, topology, Path(name)) as ranks:
            figures = _ask(ranks[0])
    good = figures["source"] == NCCL and figures["entries"] > 0
    say("passed" if good else "failed", figures, "" if good else f"{NCCL} was not asked, or knows nothing")


def _work(rank: int, folder: Path) -> None:
    tensor = torch.ones(1024, device="cuda")
    for _ in range(10):
        dist.all_reduce(tensor)
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)
    dist.all_reduce(tensor)
    ready(rank, folder)
    threading.Event().wait()


def _ask(rank: RankIdentity) -> dict[str, Any]:
    names = sorted(handler_names(rank) or ())
    answers: dict[str, Any] = {}
    for name in names:
        if name in HANDLERS:
            began = time.perf_counter()
            answer = ask_handler(rank, name)
            answers[name] = {"ms": round((time.perf_counter() - began) * 1e3, 1), "bytes": len(answer or "")}
    told = read_told(ask_flight_recorder(rank, 0))
    return {"handlers": names, "answers": answers, **told}


def read_told(text: str | None) -> dict[str, Any]:
    """Source and size of a ``flight-recorder`` text."""

    found = json.loads(text or "{}")
    return {
        "source": found.get("source", ""),
        "entries": len(found.get("entries", ())),
        "beside": [one["source"] for one in found.get("beside", ())],
    }


if __name__ == "__main__":
    main()
