"""The checks of collectives: all-to-all on this host, all-reduce with neighbours. Importing this file imports torch.

A process group for a short test, and collectives that repeat until the time of one member is over.

iteration    [ compute  ] [ collective, element 0: "my time is over" ]
             all members get the same sum, so all stop after the same iteration
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from diagnose.nodecheck.child_processes import run_bounded
from diagnose.nodecheck.devices import is_gpu, kind_of, synchronize
from diagnose.nodecheck.network import LOOPBACK, Rendezvous, interface_towards, listen
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

ALL_TO_ALL = "all-to-all"
NEIGHBOURS = "neighbours"

HOST = "127.0.0.1"
ALL_TO_ALL_BYTES = 4 << 20
ALL_REDUCE_BYTES = 16 << 20


WARM_UP = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of a group."""

    rank: int
    world_size: int
    device: str
    interface: str | None
    """The network interface for gloo and NCCL; None: their default."""
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetitions:
    """Durations of the iterations, without the first."""

    own_s: list[float]
    """Compute time of each iteration."""
    whole_s: list[float]
    """Compute and collective, with the time of waiting for other members."""
    is_right: bool
    """Whether every result was correct."""


def host_store(listener: socket.socket) -> Any:
    """The store's server, on a socket that already listens."""
    host, port = listener.getsockname()[:2]
    return dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def connect_store(host: str, port: int, timeout_s: float) -> Any:
    """A client of the store.

    Raises:
        torch.distributed.DistError: no answer in time.
    """
    return dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))


def join(store: Any, member: Member) -> None:
    """Make this process a member of the default group: gloo on CPUs, NCCL on GPUs. The group ends with the process."""
    if member.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = member.interface
    if is_gpu(member.device):
        torch.cuda.set_device(member.device)
    dist.init_process_group(
        "nccl" if is_gpu(member.device) else "gloo",
        store=store,
        rank=member.rank,
        world_size=member.world_size,
        timeout=timedelta(seconds=member.timeout_s),
    )


def all_reduce_for(
    measure_s: float, member: Member, size_bytes: int, own_work: Callable[[], object] = lambda: None
) -> Repetitions:
    """Repeat ``own_work`` and an all-reduce of ``size_bytes``."""
    own = torch.full((size_bytes // 4,), float(member.rank + 1), device=member.device)
    shared = torch.empty_like(own)
    right = member.world_size * (member.world_size + 1) / 2

    def collective(is_over: bool) -> tuple[bool, bool]:
        shared.copy_(own)
        shared[0] = float(is_over)
        dist.all_reduce(shared)
        return bool(shared[0] > 0), bool((shared[1:] == right).all())

    return _repeat(measure_s, member, own_work, collective)


def all_to_all_for(measure_s: float, member: Member, size_bytes: int) -> Repetitions:
    """Repeat an all-to-all in which each member sends ``size_bytes`` to each."""
    world, length = member.world_size, size_bytes // 4
    marks = torch.arange(world, device=member.device, dtype=torch.float32)
    sent = (member.rank * world + marks).repeat_interleave(length).reshape(world, length)
    received = torch.empty_like(sent)
    right = (marks * world + member.rank).reshape(world, 1)

    def collective(is_over: bool) -> tuple[bool, bool]:
        sent[:, 0] = float(is_over)
        dist.all_to_all_single(received, sent)
        return bool((received[:, 0] > 0).any()), bool((received[:, 1:] == right).all())

    return _repeat(measure_s, member, lambda: None, collective)


def _repeat(
    measure_s: float,
    member: Member,
    own_work: Callable[[], object],
    collective: Callable[[bool], tuple[bool, bool]],
) -> Repetitions:
    own_s, whole_s = list[float](), list[float]()
    is_right, ends, deadline = True, False, None
    while not ends:
        begun = time.perf_counter()
        own_work()
        synchronize(member.device)
        worked = time.perf_counter()
        ends, was_right = collective(deadline is not None and worked > deadline)
        own_s.append(worked - begun)
        whole_s.append(time.perf_counter() - begun)
        is_right = is_right and was_right
        deadline = deadline or time.perf_counter() + measure_s
    return Repetitions(own_s=own_s[WARM_UP:], whole_s=whole_s[WARM_UP:], is_right=is_right)


def all_to_all(
    *, devices: Sequence[str], measure_s: float, deadline_s: float, size_bytes: int = ALL_TO_ALL_BYTES
) -> CheckResult:
    """GB/s that a process of this host sends to all others: gloo over the loopback, or NCCL between GPUs.

    Failed if a process does not finish, or if wrong data arrives.
    """
    world_size = len(devices)
    members = [
        Member(rank=rank, world_size=world_size, device=device, interface=LOOPBACK, timeout_s=deadline_s)
        for rank, device in enumerate(devices)
    ]
    subject = f"{world_size} processes"
    with socket.create_server((HOST, 0)) as listener:
        calls = [partial(_exchange, member, listener, measure_s, size_bytes) for member in members]
        outcomes = run_bounded(calls, deadline_s)
    errors = [f"{devices[rank]} (rank {rank}) {call.error}" for rank, call in enumerate(outcomes) if call.error]
    if errors:
        return failed(ALL_TO_ALL, subject, "; ".join(errors))
    results: list[Repetitions] = [outcome.value for outcome in outcomes]
    if wrong := [str(rank) for rank, result in enumerate(results) if not result.is_right]:
        return failed(ALL_TO_ALL, subject, f"wrong data arrived at rank {', '.join(wrong)}")
    samples = [(world_size - 1) * size_bytes / GB / seconds for seconds in results[0].whole_s]
    detail = f"{size_bytes >> 20} MiB to each, {kind_of(devices[0]) or 'gloo over the loopback'}"
    return measured(ALL_TO_ALL, subject, "all_to_all_gb_s", samples, detail=detail)


def _exchange(member: Member, listener: socket.socket, measure_s: float, size_bytes: int) -> Repetitions:
    port = listener.getsockname()[1]
    store = host_store(listener) if member.rank == 0 else connect_store(HOST, port, member.timeout_s)
    join(store, member)
    return all_to_all_for(measure_s, member, size_bytes)


def neighbours(
    *, rendezvous: Rendezvous, device: str, measure_s: float, size_bytes: int = ALL_REDUCE_BYTES
) -> CheckResult:
    """GB/s of an all-reduce with other nodes that run this check at the same time, such as nodes of one switch.

    Counts the bytes that a ring moves: ``2 (n-1)/n`` of the size in each direction.
    """
    subject = f"{rendezvous.nodes} nodes at {rendezvous.endpoint}"
    member = Member(
        rank=rendezvous.index,
        world_size=rendezvous.nodes,
        device=device,
        interface=rendezvous.interface or interface_towards(rendezvous.host),
        timeout_s=rendezvous.patience_s,
    )
    if rendezvous.index == 0:
        store = host_store(listen(rendezvous))
    else:
        store = connect_store(rendezvous.host, rendezvous.port, rendezvous.patience_s)
    join(store, member)
    result = all_reduce_for(measure_s, member, size_bytes)
    if not result.is_right:
        return failed(NEIGHBOURS, subject, "the sum is wrong")
    with suppress(RuntimeError):  # the host of the store leaves last
        store.set(f"left/{rendezvous.index}", "")
        if rendezvous.index == 0:
            store.wait([f"left/{index}" for index in range(rendezvous.nodes)])
    moved = 2 * (rendezvous.nodes - 1) / rendezvous.nodes * size_bytes / GB
    detail = f"{size_bytes >> 20} MiB all-reduced {len(result.whole_s)} times"
    return measured(
        NEIGHBOURS, subject, "neighbours_gb_s", [moved / seconds for seconds in result.whole_s], detail=detail
    )
