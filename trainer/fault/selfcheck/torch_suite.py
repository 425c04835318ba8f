"""The checks that need torch. Importing this file imports torch, and nothing of a device."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from trainer.fault.selfcheck import devices
from trainer.fault.selfcheck.answers import Tell
from trainer.fault.selfcheck.bounded import run_bounded
from trainer.fault.selfcheck.checks import all_to_all, device_copies, device_memory, gemm, neighbours
from trainer.fault.selfcheck.node import NodeChecks
from trainer.fault.selfcheck.result import CheckResult, failed, skipped
from trainer.fault.selfcheck.task import Task

HOST = "cpu"
MAX_CPU_PROCESSES = 4


def torch_rounds(checks: NodeChecks, tell: Tell) -> Iterator[Sequence[Task]]:
    """On each GPU; on the CPU where there is none."""
    gpus = _gpus(checks, tell)
    each = gpus or [HOST]
    yield [_on(checks, gemm.CHECK, device, partial(gemm.run, device=device)) for device in each]
    if gpus:
        yield [_on(checks, device_memory.CHECK, gpu, partial(device_memory.run, device=gpu)) for gpu in gpus]
        yield from ([_copy(checks, source, target)] for source, target in copies_among(gpus))
    else:
        for check in (device_memory.CHECK, device_copies.CHECK):
            tell(skipped(check, "", "no CUDA device"))
    yield from _collectives(checks, gpus, tell)


def copies_among(gpus: Sequence[str]) -> list[tuple[str, str]]:
    """Host to each GPU and back, and around the ring of GPUs."""
    ring = [(gpu, gpus[(place + 1) % len(gpus)]) for place, gpu in enumerate(gpus) if len(gpus) > 1]
    return [*((HOST, gpu) for gpu in gpus), *((gpu, HOST) for gpu in gpus), *ring]


def _gpus(checks: NodeChecks, tell: Tell) -> list[str]:
    """Asked in a process of its own: a driver may hang, and after it has been asked no fork may use it."""
    (found,) = run_bounded([devices.gpus], checks.deadline_s)
    if found.error:
        tell(failed(device_memory.CHECK, "cuda", f"asking the driver for its devices {found.error}"))
    return found.value or []


def _collectives(checks: NodeChecks, gpus: Sequence[str], tell: Tell) -> Iterator[Sequence[Task]]:
    members = gpus or [HOST] * min(max(os.cpu_count() or 1, 2), MAX_CPU_PROCESSES)
    if len(members) > 1:
        # One that hangs is named by its siblings' caller, which therefore must outlive it.
        call = partial(all_to_all.run, devices=members, deadline_s=0.8 * checks.deadline_s)
        yield [_on(checks, all_to_all.CHECK, f"{len(members)} processes", call)]
    else:
        tell(skipped(all_to_all.CHECK, "", "one GPU: nobody to talk to"))
    if checks.meeting is None:
        tell(skipped(neighbours.CHECK, "", "no neighbours given (--rdzv-endpoint, --node-rank, --nnodes)"))
        return
    call = partial(neighbours.run, meeting=checks.meeting, device=members[0])
    deadline_s = checks.meeting.patience_s + checks.deadline_s
    yield [_on(checks, neighbours.CHECK, checks.meeting.endpoint, call, deadline_s)]


def _copy(checks: NodeChecks, source: str, target: str) -> Task:
    call = partial(device_copies.run, source=source, target=target)
    return _on(checks, device_copies.CHECK, f"{source} -> {target}", call)


def _on(
    checks: NodeChecks, check: str, subject: str, run: Callable[..., CheckResult], deadline_s: float | None = None
) -> Task:
    call = partial(run, measure_s=checks.measure_s)
    return Task(check=check, subject=subject, call=call, deadline_s=deadline_s or checks.deadline_s)
