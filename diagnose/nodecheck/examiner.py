"""The process that tests a node: ``python -m``, started by ``check_node`` and ``run_paired_test`` only.

check_node         memory .. products .. copies .. network .. collectives .. disk .. shared memory
run_paired_test    the rounds of ``pairs/rounds.py``

A round contains the checks that run at once: the same check on equal devices that share nothing that is measured. The
process imports torch once and forks for each check, so it never uses a device itself.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from diagnose.nodecheck.checks.host import (
    DISK,
    HOST_COPIES,
    HOST_MEMORY,
    SHARED_MEMORY,
    SHARED_MEMORY_ROOM,
    SHM,
    disk,
    host_copies,
    host_memory,
    shared_memory,
    shared_memory_room,
)
from diagnose.nodecheck.checks.tcp import LOOPBACK, NIC_PAIR, loopback, nic_pair
from diagnose.nodecheck.child_processes import Report, first_line, run_bounded, serve
from diagnose.nodecheck.network import find_address, interface_named, interfaces
from diagnose.nodecheck.node import Begun, NodeChecks
from diagnose.nodecheck.pairs.paired_test import PairedTest
from diagnose.nodecheck.result import CheckResult, Task, failed, skipped
from telemetry.errors import UnreadableError, UsageError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import RankIdentity

NEEDS_TORCH = ("gemm", "device-memory", "device-copies", "all-to-all", "neighbours")
INSTALL_TORCH = "pip install 'rankscope[train]'"
START_SLACK_S = 10.0
"""A process that began more than this after the rank is a later process with the same pid."""

Rounds = Iterator[Sequence[Task]]


def examine(request: NodeChecks | PairedTest, report: Report) -> None:
    """Run what is requested.

    Raises:
        UsageError: for the reasons of ``check_node`` and ``run_paired_test``.
        UnreachableError: for the reasons of ``run_paired_test``.
    """
    if isinstance(request, PairedTest):
        _join_paired_test(request, report)
    else:
        _run_checks(request, report)


def _run_checks(checks: NodeChecks, report: Report) -> None:
    _require_folder(checks)
    if not checks.beside_others:
        _refuse_training_host(checks)
    if checks.interface:
        interface_named(checks.interface)
    for tasks in _rounds(checks, report):
        report(Begun(check=tasks[0].check))
        outcomes = run_bounded([task.call for task in tasks], max(task.deadline_s for task in tasks))
        for task, outcome in zip(tasks, outcomes, strict=True):
            result = failed(task.check, task.subject, outcome.error) if outcome.error else outcome.value
            report(replace(result, seconds=outcome.seconds, is_late=outcome.is_late, is_killed=outcome.is_killed))


def _join_paired_test(test: PairedTest, report: Report) -> None:
    if test.rendezvous.interface:
        interface_named(test.rendezvous.interface)
    if test.rendezvous.index == 0:
        find_address(test.rendezvous)
    try:
        from diagnose.nodecheck.pairs.rounds import take_part  # noqa: PLC0415 - torch is an optional extra
    except ImportError as error:
        raise UsageError(f"the paired test needs torch ({first_line(error)})", hint=INSTALL_TORCH) from error
    take_part(test, report)


def _rounds(checks: NodeChecks, report: Report) -> Rounds:
    """All checks that this machine can run, or the quick ones. Reports those that need something else as skipped."""
    yield _task(checks, HOST_MEMORY, "memory", host_memory)
    if not checks.quick:
        yield _task(checks, HOST_COPIES, "memory", host_copies)
    yield from _with_torch(checks, report)
    if not checks.quick:
        yield from _network(checks, report)
    yield _task(checks, DISK, str(checks.folder), partial(disk, folder=checks.folder))
    if checks.quick:
        return
    yield _task(checks, SHARED_MEMORY_ROOM, str(SHM), shared_memory_room)
    yield _task(checks, SHARED_MEMORY, str(SHM), shared_memory)


def _with_torch(checks: NodeChecks, report: Report) -> Rounds:
    try:
        from diagnose.nodecheck.torch_suite import torch_rounds  # noqa: PLC0415 - torch is an optional extra
    except ImportError as error:
        for check in NEEDS_TORCH:
            report(skipped(check, "", f"torch cannot be imported ({first_line(error)}); {INSTALL_TORCH}"))
        return
    yield from torch_rounds(checks, report)


def _network(checks: NodeChecks, report: Report) -> Rounds:
    """The checks of each interface, then of each pair of neighbours in the ring of interfaces."""
    found = [interface_named(checks.interface)] if checks.interface else interfaces()
    for interface in found:
        yield _task(checks, LOOPBACK, interface.name, partial(loopback, interface=interface))
    if len(found) < 2:
        report(skipped(NIC_PAIR, "", f"needs two interfaces, found {len(found)}"))
        return
    for source, target in [*pairwise(found), (found[-1], found[0])]:
        yield _task(
            checks, NIC_PAIR, f"{source.name} -> {target.name}", partial(nic_pair, source=source, target=target)
        )


def _task(checks: NodeChecks, check: str, subject: str, run: Callable[..., CheckResult]) -> Sequence[Task]:
    """A round of one check."""
    call = partial(run, measure_s=checks.measure_s)
    return [Task(check=check, subject=subject, call=call, deadline_s=checks.deadline_s)]


def _require_folder(checks: NodeChecks) -> None:
    """Check that the folder exists, in a separate process: a dead mount blocks the process that reads it. The check of
    the disk then reports the mount."""
    (found,) = run_bounded([checks.folder.is_dir], checks.deadline_s)
    if found.value is False:
        raise UsageError(f"no folder {checks.folder}", hint="--folder needs a folder of the disk to check")


def _refuse_training_host(checks: NodeChecks) -> None:
    """Check that no ranks record on this host, in a separate process: a spool may be on a dead mount."""
    (found,) = run_bounded([lambda: recording_ranks(spools())], checks.deadline_s)
    if found.value:
        raise UsageError(
            describe_ranks(found.value),
            hint="checks would take memory and cores from them: drain this host first, then check it; or use --force",
        )


def spools(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Spools of this host: the folder in the environment, else the folders of all users."""
    if named := environment.get("RANKSCOPE_SPOOL"):
        return [Path(named)]
    return sorted(Path(tempfile.gettempdir()).glob("rankscope-*/spool"))


def recording_ranks(folders: list[Path], proc: Path = Path("/proc")) -> list[RankIdentity]:
    """Ranks below these spools whose processes exist and have not ended their recording. Skips unreadable folders."""
    found: list[RankIdentity] = []
    for folder in folders:
        with suppress(OSError):
            for rank_dir in find_rank_dirs(folder):
                with suppress(UnreadableError, OSError, ValueError, OverflowError):
                    reader = RankReader(rank_dir)
                    identity = reader.identity()
                    if not reader.live().ended and _exists(identity, proc):
                        found.append(identity)
    return found


def describe_ranks(ranks: list[RankIdentity]) -> str:
    """The ranks in words: ``8 ranks of run llama are recording on this host (pid 4711 and others)``."""
    runs = ", ".join(sorted({rank.run_id for rank in ranks}))
    many = f"{len(ranks)} ranks of run {runs} are" if len(ranks) > 1 else f"rank {ranks[0].rank} of run {runs} is"
    return f"{many} recording on this host (pid {ranks[0].pid}{' and others' if len(ranks) > 1 else ''})"


def _exists(identity: RankIdentity, proc: Path) -> bool:
    """Whether the process that wrote this identity still exists."""
    try:
        fields = (proc / str(identity.pid) / "stat").read_text().rpartition(")")[2].split()
        boot_s = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime")).split()[1]
        began_s = int(boot_s) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return fields[0] not in "ZX" and began_s <= identity.started_ns / 1e9 + START_SLACK_S


if __name__ == "__main__":
    serve(examine)
