"""The checks that need torch. Importing this file imports torch, and nothing of a device."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from diagnose.nodecheck import devices
from diagnose.nodecheck.answers import Tell
from diagnose.nodecheck.bounded import run_bounded
from diagnose.nodecheck.checks import all_to_all, device_copies, device_memory, gemm, neighbours
from diagnose.nodecheck.node import NodeChecks
from diagnose.nodecheck.occupied import GpuUse, Use
from diagnose.nodecheck.result import CheckResult, Task, failed, skipped

HOST = "cpu"
MAX_CPU_PROCESSES = 4


def torch_rounds(checks: NodeChecks, tell: Tell) -> Iterator[Sequence[Task]]:
    """On each GPU that nobody else has; on the CPU where there is none."""
    found = _uses(checks, tell)
    uses = [one for one in found if one.use is not Use.TAKEN]
    for one in found:
        if one.use is Use.TAKEN:
            tell(skipped("gpu", one.device, f"{one.why}: drain it first; what it has is left to it"))
    gpus = [one.device for one in uses]
    if gpus or not found:
        yield [_on(checks, gemm.CHECK, device, partial(gemm.run, device=device)) for device in gpus or [HOST]]
    if gpus:
        yield [_memory_of(checks, one) for one in uses]
        yield from ([_copy(checks, source, target)] for source, target in copies_among(gpus))
    else:
        for check in (device_memory.CHECK, device_copies.CHECK):
            tell(skipped(check, "", "no CUDA device that is free" if found else "no CUDA device"))
    yield from _collectives(checks, gpus if found else _processes(), tell)


def copies_among(gpus: Sequence[str]) -> list[tuple[str, str]]:
    """Host to each GPU and back, and around the ring of GPUs."""
    ring = [(gpu, gpus[(place + 1) % len(gpus)]) for place, gpu in enumerate(gpus) if len(gpus) > 1]
    return [*((HOST, gpu) for gpu in gpus), *((gpu, HOST) for gpu in gpus), *ring]


def _uses(checks: NodeChecks, tell: Tell) -> list[GpuUse]:
    """Asked in a process of its own: a driver may hang, and after it has been asked no fork may use it."""
    (found,) = run_bounded([devices.uses], checks.deadline_s)
    if found.error:
        tell(failed(device_memory.CHECK, "cuda", f"asking the driver for its devices {found.error}"))
    uses: list[GpuUse] = found.value or []
    if checks.beside_others:
        return [one if one.use is Use.FREE else replace(one, use=Use.UNKNOWN) for one in uses]
    return uses


def _memory_of(checks: NodeChecks, gpu: GpuUse) -> Task:
    call = partial(device_memory.run, device=gpu.device, alone=gpu.use is Use.FREE)
    return _on(checks, device_memory.CHECK, gpu.device, call)


def _processes() -> list[str]:
    return [HOST] * min(max(os.cpu_count() or 1, 2), MAX_CPU_PROCESSES)


def _collectives(checks: NodeChecks, members: list[str], tell: Tell) -> Iterator[Sequence[Task]]:
    if len(members) > 1:
        # One that hangs is named by its siblings' caller, which therefore must outlive it.
        call = partial(all_to_all.run, devices=members, deadline_s=0.8 * checks.deadline_s)
        yield [_on(checks, all_to_all.CHECK, f"{len(members)} processes", call)]
    else:
        tell(skipped(all_to_all.CHECK, "", "one GPU: nobody to talk to" if members else "no CUDA device that is free"))
    if checks.rendezvous is None:
        tell(skipped(neighbours.CHECK, "", "no neighbours given (--rdzv-endpoint, --node-rank, --nnodes)"))
        return
    if not members:
        tell(skipped(neighbours.CHECK, "", "no CUDA device that is free"))
        return
    call = partial(neighbours.run, rendezvous=checks.rendezvous, device=members[0])
    deadline_s = checks.rendezvous.patience_s + checks.deadline_s
    yield [_on(checks, neighbours.CHECK, checks.rendezvous.endpoint, call, deadline_s)]


def _copy(checks: NodeChecks, source: str, target: str) -> Task:
    call = partial(device_copies.run, source=source, target=target)
    return _on(checks, device_copies.CHECK, f"{source} -> {target}", call)


def _on(
    checks: NodeChecks, check: str, subject: str, run: Callable[..., CheckResult], deadline_s: float | None = None
) -> Task:
    call = partial(run, measure_s=checks.measure_s)
    return Task(check=check, subject=subject, call=call, deadline_s=deadline_s or checks.deadline_s)
