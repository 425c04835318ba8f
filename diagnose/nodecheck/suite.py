"""Which checks a node gets, in which order: a table of contents.

memory .. products .. copies .. network .. collectives .. disk .. shared memory

A round is what runs at once: the same check on equal devices, where they do not share what is measured.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from diagnose.nodecheck.answers import Tell
from diagnose.nodecheck.bounded import first_line
from diagnose.nodecheck.checks import (
    disk,
    host_copies,
    host_memory,
    loopback,
    nic_pair,
    shared_memory,
    shared_memory_room,
)
from diagnose.nodecheck.network import Interface, interface_named, interfaces
from diagnose.nodecheck.node import NodeChecks
from diagnose.nodecheck.result import CheckResult, Task, skipped

NEEDS_TORCH = ("gemm", "device-memory", "device-copies", "all-to-all", "neighbours")


Rounds = Iterator[Sequence[Task]]


def rounds_of(checks: NodeChecks, tell: Tell) -> Rounds:
    """The rounds of all checks that can be made here; tells which cannot."""
    yield from _memory(checks)
    yield from _with_torch(checks, tell)
    yield from _network(checks, tell)
    yield from _storage(checks)


def _memory(checks: NodeChecks) -> Rounds:
    for module in (host_memory, host_copies):
        yield [_task(checks, module.CHECK, "memory", partial(module.run, measure_s=checks.measure_s))]


def _with_torch(checks: NodeChecks, tell: Tell) -> Rounds:
    try:
        from diagnose.nodecheck.torch_suite import torch_rounds  # noqa: PLC0415 - torch is an optional extra
    except ImportError as error:
        reason = f"torch cannot be imported ({first_line(error)}); pip install 'rankscope[train]'"
        for check in NEEDS_TORCH:
            tell(skipped(check, "", reason))
        return
    yield from torch_rounds(checks, tell)


def _network(checks: NodeChecks, tell: Tell) -> Rounds:
    """Two neighbours of a ring of interfaces at a time."""
    found = [interface_named(checks.interface)] if checks.interface else interfaces()
    for one in found:
        yield [
            _task(checks, loopback.CHECK, one.name, partial(loopback.run, interface=one, measure_s=checks.measure_s))
        ]
    if len(found) < 2:
        tell(skipped(nic_pair.CHECK, "", f"{len(found)} interface to try: no pair"))
    for source, target in _ring(found):
        call = partial(nic_pair.run, source=source, target=target, measure_s=checks.measure_s)
        yield [_task(checks, nic_pair.CHECK, f"{source.name} -> {target.name}", call)]


def _storage(checks: NodeChecks) -> Rounds:
    call = partial(disk.run, folder=checks.folder, measure_s=checks.measure_s)
    yield [_task(checks, disk.CHECK, str(checks.folder), call)]
    for module in (shared_memory_room, shared_memory):
        yield [
            _task(checks, module.CHECK, str(shared_memory_room.SHM), partial(module.run, measure_s=checks.measure_s))
        ]


def _ring(found: Sequence[Interface]) -> list[tuple[Interface, Interface]]:
    pairs = list(pairwise(found))
    return [*pairs, (found[-1], found[0])] if len(found) > 1 else pairs


def _task(checks: NodeChecks, check: str, subject: str, call: Callable[[], CheckResult]) -> Task:
    return Task(check=check, subject=subject, call=call, deadline_s=checks.deadline_s)
