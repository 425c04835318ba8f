"""A process group for a short test, and collectives that repeat until the time of one member is over.

iteration    [ own work ] [ collective, element 0: "my time is over" ]
             all members get the same sum, so all stop after the same iteration
"""

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from diagnose.nodecheck.devices import is_gpu, synchronize

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
    """The own work of each iteration."""
    whole_s: list[float]
    """Own work and collective, with the waiting time for other members."""
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
