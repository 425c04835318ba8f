"""The checks that need torch. Importing this file imports torch, but uses no device."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from diagnose.nodecheck.checks.device import (
    DEVICE_COPIES,
    DEVICE_MEMORY,
    GEMM,
    device_copies,
    device_memory,
    gemm,
)
from diagnose.nodecheck.child_processes import Report, run_bounded
from diagnose.nodecheck.collective import ALL_TO_ALL, NEIGHBOURS, all_to_all, neighbours
from diagnose.nodecheck.devices import GpuUse, Use, uses
from diagnose.nodecheck.node import NodeChecks
from diagnose.nodecheck.result import CheckResult, Task, failed, skipped

HOST = "cpu"
MAX_CPU_PROCESSES = 4
NO_FREE_GPU = "no free CUDA device"


def torch_rounds(checks: NodeChecks, report: Report) -> Iterator[Sequence[Task]]:
    """Tasks on each GPU that no other process uses; on the CPU if there is no GPU."""
    found = _uses(checks, report)
    for gpu in found:
        if gpu.use is Use.TAKEN:
            report(skipped("gpu", gpu.device, f"{gpu.why}: drain it first, then check it"))
    available = [gpu for gpu in found if gpu.use is not Use.TAKEN]
    gpus = [gpu.device for gpu in available]
    if gpus or not found:
        yield [_task(checks, GEMM, device, partial(gemm, device=device)) for device in gpus or [HOST]]
    if gpus:
        yield [
            _task(
                checks,
                DEVICE_MEMORY,
                gpu.device,
                partial(device_memory, device=gpu.device, alone=gpu.use is Use.FREE),
            )
            for gpu in available
        ]
        for source, target in [] if checks.quick else copies_among(gpus):
            call = partial(device_copies, source=source, target=target)
            yield [_task(checks, DEVICE_COPIES, f"{source} -> {target}", call)]
    else:
        for check in (DEVICE_MEMORY, DEVICE_COPIES):
            report(skipped(check, "", NO_FREE_GPU if found else "no CUDA device"))
    if checks.quick:
        return
    processes = min(max(os.cpu_count() or 1, 2), MAX_CPU_PROCESSES)
    yield from _collectives(checks, gpus if found else [HOST] * processes, report)


def copies_among(gpus: Sequence[str]) -> list[tuple[str, str]]:
    """Source and target of each copy: from the host to each GPU and back, and around the ring of GPUs."""
    ring = [(gpu, gpus[(place + 1) % len(gpus)]) for place, gpu in enumerate(gpus) if len(gpus) > 1]
    return [*((HOST, gpu) for gpu in gpus), *((gpu, HOST) for gpu in gpus), *ring]


def _uses(checks: NodeChecks, report: Report) -> list[GpuUse]:
    """All GPUs with their use, read in a separate process: a driver can hang, and after its initialisation no fork
    could use it."""
    (found,) = run_bounded([uses], checks.deadline_s)
    if found.error:
        report(failed(DEVICE_MEMORY, "cuda", f"the query of the driver {found.error}"))
    gpus: list[GpuUse] = found.value or []
    if checks.beside_others:
        return [gpu if gpu.use is Use.FREE else replace(gpu, use=Use.UNKNOWN) for gpu in gpus]
    return gpus


def _collectives(checks: NodeChecks, members: list[str], report: Report) -> Iterator[Sequence[Task]]:
    if len(members) > 1:
        # The check names a member that hangs, so the check must end after its members.
        call = partial(all_to_all, devices=members, deadline_s=0.8 * checks.deadline_s)
        yield [_task(checks, ALL_TO_ALL, f"{len(members)} processes", call)]
    else:
        report(skipped(ALL_TO_ALL, "", "only one GPU" if members else NO_FREE_GPU))
    if checks.rendezvous is None:
        report(skipped(NEIGHBOURS, "", "no neighbours given (--rdzv-endpoint, --node-rank, --nnodes)"))
    elif not members:
        report(skipped(NEIGHBOURS, "", NO_FREE_GPU))
    else:
        call = partial(neighbours, rendezvous=checks.rendezvous, device=members[0])
        deadline_s = checks.rendezvous.patience_s + checks.deadline_s
        yield [_task(checks, NEIGHBOURS, checks.rendezvous.endpoint, call, deadline_s)]


def _task(
    checks: NodeChecks, check: str, subject: str, run: Callable[..., CheckResult], deadline_s: float | None = None
) -> Task:
    call = partial(run, measure_s=checks.measure_s)
    return Task(check=check, subject=subject, call=call, deadline_s=deadline_s or checks.deadline_s)
