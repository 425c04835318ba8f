"""All-to-all among processes of this host: gloo over the loopback, NCCL where there are GPUs."""

import socket
from collections.abc import Sequence
from functools import partial

from diagnose.nodecheck.bounded import run_bounded
from diagnose.nodecheck.collective import Member, Repeated, all_to_all_for, host_store, join, reach_store
from diagnose.nodecheck.devices import kind_of
from diagnose.nodecheck.network import LOOPBACK
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

CHECK = "all-to-all"
HOST = "127.0.0.1"
SIZE_BYTES = 4 << 20


def run(*, devices: Sequence[str], measure_s: float, deadline_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """GB/s that a process sends to all others; failed when one does not finish, or what it got is not what was sent."""
    world_size = len(devices)
    members = [
        Member(rank=rank, world_size=world_size, device=device, interface=LOOPBACK, timeout_s=deadline_s)
        for rank, device in enumerate(devices)
    ]
    subject = f"{world_size} processes"
    with socket.create_server((HOST, 0)) as listener:
        calls = [partial(_take_part, member, listener, measure_s, size_bytes) for member in members]
        outcomes = run_bounded(calls, deadline_s)
    errors = [f"{devices[rank]} (rank {rank}) {one.error}" for rank, one in enumerate(outcomes) if one.error]
    if errors:
        return failed(CHECK, subject, "; ".join(errors))
    answers: list[Repeated] = [one.value for one in outcomes]
    if wrong := [str(rank) for rank, answer in enumerate(answers) if not answer.is_right]:
        return failed(CHECK, subject, f"wrong data came to rank {', '.join(wrong)}")
    samples = [(world_size - 1) * size_bytes / GB / seconds for seconds in answers[0].whole_s]
    detail = f"{size_bytes >> 20} MiB to each, {kind_of(devices[0]) or 'gloo over the loopback'}"
    return measured(CHECK, subject, "all_to_all_gb_s", samples, detail=detail)


def _take_part(member: Member, listener: socket.socket, measure_s: float, size_bytes: int) -> Repeated:
    port = listener.getsockname()[1]
    store = host_store(listener) if member.rank == 0 else reach_store(HOST, port, member.timeout_s)
    join(store, member)
    return all_to_all_for(measure_s, member, size_bytes)
