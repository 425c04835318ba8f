"""Checks of collectives: all-to-all on this host, all-reduce with neighbours. Importing this file imports torch."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from diagnose.nodecheck.child_processes import run_bounded
from diagnose.nodecheck.collective import (
    Member,
    Repetitions,
    all_reduce_for,
    all_to_all_for,
    connect_store,
    host_store,
    join,
)
from diagnose.nodecheck.devices import kind_of
from diagnose.nodecheck.network import LOOPBACK, Rendezvous, interface_towards, listen
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

ALL_TO_ALL = "all-to-all"
NEIGHBOURS = "neighbours"

HOST = "127.0.0.1"
ALL_TO_ALL_BYTES = 4 << 20
ALL_REDUCE_BYTES = 16 << 20


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
