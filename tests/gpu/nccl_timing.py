"""Recorded collectives and transfers against NCCL's own timing of the same operations, on all GPUs.

    issue ---- matmuls ---- wait        the transfer ends long before the host waits

NCCL's timing is what ``Work._get_duration`` gives, with timing enabled; the flight recorder keeps it of each operation.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import telemetry
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.deadline import until
from tests.gpu.outcome import say
from tests.gpu.ranks import run_ranks
from tests.telemetry.recording import recorded

WARM_UP, NUM = 5, 30
ELEMENTS = 32 * 2**20
"""bfloat16: 64 MiB."""
MAX_SHARE, MAX_US = 0.05, 20.0
"""A median may differ from NCCL's by so much of it, or by so much."""
COLLECTIVES = {
    Stage.GRADS_ALL_REDUCE: "allreduce",
    Stage.PARAMS_ALL_GATHER: "allgather",
    Stage.GRADS_REDUCE_SCATTER: "reducescatter",
}
"""NCCL's names without underscores, as the recorder has them: ``nccl:all_reduce``, ``nccl:_all_gather_base``."""
TRANSFERS = {Stage.FORWARD_SEND: "send", Stage.FORWARD_RECV: "recv"}


def main() -> None:
    world = torch.cuda.device_count()
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        figures = _of_job(_collectives, Topology(dp=world), Path(name) / "dp", COLLECTIVES)
        if world > 1:
            figures |= _of_job(_transfers, Topology(pp=world), Path(name) / "pp", TRANSFERS)
    if world == 1:
        reason = "one GPU: a group of one rank has no axis and no spans, and nobody to send to; NCCL's timing alone"
        good = all(one["nccl_us"] for one in figures.values())
    else:
        apart = [label for label, one in figures.items() if not one["agrees"]]
        good, reason = not apart, f"differs from NCCL's timing: {', '.join(apart)}" if apart else ""
    say("passed" if good else "failed", {"gpus": world, **figures}, reason)


def _of_job(
    work: Callable[[int, Path], None], topology: Topology, folder: Path, stages: dict[Stage, str]
) -> dict[str, Any]:
    run_ranks(work, topology, folder)
    found: dict[str, Any] = {}
    for stage, name in stages.items():
        by_rank = [
            (_spans_of(folder, rank, stage), durations_of(json.loads(path.read_text()), name))
            for rank in range(topology.world_size)
            if (path := folder / f"recorder-{rank}.json").exists()
        ]
        spans = [one for told, _ in by_rank for one in told]
        found[stage.label] = compared(spans, [one for _, told in by_rank for one in told])
    return found


def _spans_of(folder: Path, rank: int, stage: Stage) -> list[int]:
    """Durations, without the first ones."""
    spans = recorded(folder, rank).spans
    durations: list[int] = spans["duration_ns"][spans["stage"] == stage].tolist()
    return durations[WARM_UP:]


def durations_of(entries: Iterable[dict[str, Any]], name: str) -> list[float]:
    """Milliseconds by NCCL of the operations of a name, without the first ones."""
    named = [one for one in entries if _plain(one["profiling_name"]).startswith(name)]
    return [one["duration_ms"] for one in named if one.get("duration_ms") is not None][WARM_UP:]


def _plain(profiling_name: str) -> str:
    return profiling_name.partition(":")[2].replace("_", "")


def compared(spans_ns: Sequence[int], nccl_ms: Sequence[float]) -> dict[str, Any]:
    """Medians of both, and whether they agree."""
    span_us = median(spans_ns) / 1e3 if spans_ns else None
    nccl_us = median(nccl_ms) * 1e3 if nccl_ms else None
    agrees = False
    if span_us is not None and nccl_us is not None:
        agrees = abs(span_us - nccl_us) <= max(MAX_SHARE * nccl_us, MAX_US)
    return {
        "span_us": span_us and round(span_us, 1),
        "nccl_us": nccl_us and round(nccl_us, 1),
        "spans": len(spans_ns),
        "timed_by_nccl": len(nccl_ms),
        "agrees": agrees,
    }


def _collectives(rank: int, folder: Path) -> None:
    world = dist.get_world_size()
    whole = torch.ones(ELEMENTS // world * world, device="cuda", dtype=torch.bfloat16)
    part = torch.ones(ELEMENTS // world, device="cuda", dtype=torch.bfloat16)
    issues: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(whole, async_op=True),
        lambda: dist.all_gather_into_tensor(whole, part, async_op=True),
        lambda: dist.reduce_scatter_tensor(part, whole, async_op=True),
    ]
    _issue(issues)
    _write_recorder(rank, folder)


def _transfers(rank: int, folder: Path) -> None:
    """From rank 0 to rank 1."""
    data = torch.ones(ELEMENTS, device="cuda", dtype=torch.bfloat16)
    if rank == 0:
        _issue([lambda: dist.isend(data, 1)])
    elif rank == 1:
        _issue([lambda: dist.irecv(data, 0)])
    if rank < 2:
        _write_recorder(rank, folder)


def _issue(issues: list[Callable[[], Any]]) -> None:
    side = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
    for number in range(WARM_UP + NUM):
        with telemetry.step(number):
            for issue in issues:
                work = issue()
                for _ in range(8):
                    side @ side
                work.wait()
        torch.cuda.synchronize()


def _write_recorder(rank: int, folder: Path) -> None:
    """Write the entries of the recorder, after NCCL's watchdog has timed all operations."""
    found: list[dict[str, Any]] = []

    def is_complete() -> bool:
        found[:] = json.loads(torch._C._distributed_c10d._dump_nccl_trace_json()).get("entries", [])
        return bool(found) and all(entry["retired"] for entry in found)

    until(is_complete, seconds=20, what="all operations timed by NCCL")
    (folder / f"recorder-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
