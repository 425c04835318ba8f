"""All-reduce with neighbours: nodes that share a switch, each running this check at the same time."""

from contextlib import suppress
from typing import Any

from diagnose.nodecheck.collective import Member, all_reduce_for, host_store, join, reach_store
from diagnose.nodecheck.meeting import Meeting, listen
from diagnose.nodecheck.network import interface_towards
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

CHECK = "neighbours"
SIZE_BYTES = 16 << 20


def run(*, meeting: Meeting, device: str, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """GB/s of the ring that an all-reduce is, as large messages see it (``2 (n-1)/n`` of the bytes each way)."""
    subject = f"{meeting.nodes} nodes at {meeting.endpoint}"
    member = Member(
        rank=meeting.index,
        world_size=meeting.nodes,
        device=device,
        interface=meeting.interface or interface_towards(meeting.host),
        timeout_s=meeting.patience_s,
    )
    store = _store(meeting)
    join(store, member)
    answer = all_reduce_for(measure_s, member, size_bytes)
    if not answer.is_right:
        return failed(CHECK, subject, "the sum is wrong")
    _part(store, meeting)
    moved = 2 * (meeting.nodes - 1) / meeting.nodes * size_bytes / GB
    detail = f"{size_bytes >> 20} MiB all-reduced {len(answer.whole_s)} times"
    return measured(CHECK, subject, "neighbours_gb_s", [moved / one for one in answer.whole_s], detail=detail)


def _store(meeting: Meeting) -> Any:
    if meeting.index == 0:
        return host_store(listen(meeting))
    return reach_store(meeting.host, meeting.port, meeting.patience_s)


def _part(store: Any, meeting: Meeting) -> None:
    """The host of the store leaves last."""
    with suppress(RuntimeError):
        store.set(f"left/{meeting.index}", "")
        if meeting.index == 0:
            store.wait([f"left/{index}" for index in range(meeting.nodes)])
