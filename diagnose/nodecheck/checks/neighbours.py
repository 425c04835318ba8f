"""All-reduce with neighbours: nodes that share a switch, each running this check at the same time."""

from contextlib import suppress
from typing import Any

from diagnose.nodecheck.collective import Member, all_reduce_for, host_store, join, reach_store
from diagnose.nodecheck.network import interface_towards
from diagnose.nodecheck.rendezvous import Rendezvous, listen
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

CHECK = "neighbours"
SIZE_BYTES = 16 << 20


def run(*, rendezvous: Rendezvous, device: str, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """GB/s of the ring that an all-reduce is, as large messages see it (``2 (n-1)/n`` of the bytes each way)."""
    subject = f"{rendezvous.nodes} nodes at {rendezvous.endpoint}"
    member = Member(
        rank=rendezvous.index,
        world_size=rendezvous.nodes,
        device=device,
        interface=rendezvous.interface or interface_towards(rendezvous.host),
        timeout_s=rendezvous.patience_s,
    )
    store = _store(rendezvous)
    join(store, member)
    answer = all_reduce_for(measure_s, member, size_bytes)
    if not answer.is_right:
        return failed(CHECK, subject, "the sum is wrong")
    _part(store, rendezvous)
    moved = 2 * (rendezvous.nodes - 1) / rendezvous.nodes * size_bytes / GB
    detail = f"{size_bytes >> 20} MiB all-reduced {len(answer.whole_s)} times"
    return measured(CHECK, subject, "neighbours_gb_s", [moved / one for one in answer.whole_s], detail=detail)


def _store(rendezvous: Rendezvous) -> Any:
    if rendezvous.index == 0:
        return host_store(listen(rendezvous))
    return reach_store(rendezvous.host, rendezvous.port, rendezvous.patience_s)


def _part(store: Any, rendezvous: Rendezvous) -> None:
    """The host of the store leaves last."""
    with suppress(RuntimeError):
        store.set(f"left/{rendezvous.index}", "")
        if rendezvous.index == 0:
            store.wait([f"left/{index}" for index in range(rendezvous.nodes)])
