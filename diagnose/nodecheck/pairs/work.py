"""What two nodes do together in a round: a matrix product each, then an all-reduce of both; again and again.

node a   [ product ][ all-reduce ][ product ][ all-reduce ] ..      one process for each GPU, one for the CPU
node b   [  product   ][ reduce  ][  product   ][ reduce  ] ..
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
import torch.distributed as dist

from diagnose.nodecheck.bounded import run_bounded
from diagnose.nodecheck.collective import Member, all_reduce_for, join, reach_store
from diagnose.nodecheck.devices import is_gpu
from diagnose.nodecheck.meeting import Meeting
from diagnose.nodecheck.network import interface_towards

SIZE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One node's part in a pair: means over the iterations, so that a pause counts; of its slowest device."""

    seconds: float | None
    own_s: float = 0.0
    reason: str = ""
    """Why it failed."""


def work_together(
    meeting: Meeting, pair: tuple[int, int], key: str, devices: Sequence[str], measure_s: float, deadline_s: float
) -> Share:
    """This node's share in ``pair``; both sides call this with the same ``key``."""
    first_rank = pair.index(meeting.index) * len(devices)
    interface = meeting.interface or interface_towards(meeting.host)
    members = [
        Member(
            rank=first_rank + place,
            world_size=2 * len(devices),
            device=device,
            interface=interface,
            timeout_s=deadline_s,
        )
        for place, device in enumerate(devices)
    ]
    calls = [partial(_iterate, meeting, member, key, measure_s) for member in members]
    outcomes = run_bounded(calls, deadline_s)
    if errors := [outcome.error for outcome in outcomes if outcome.error]:
        return Share(seconds=None, reason=errors[0])
    shares: list[Share] = [outcome.value for outcome in outcomes]
    return max(shares, key=lambda share: (share.seconds is None, share.seconds or 0.0))


def _iterate(meeting: Meeting, member: Member, key: str, measure_s: float) -> Share:
    join(dist.PrefixStore(key, reach_store(meeting.host, meeting.port, member.timeout_s)), member)
    size = 4096 if is_gpu(member.device) else 512
    a = torch.randn(size, size, device=member.device)
    b, out = torch.randn_like(a), torch.empty_like(a)
    done = all_reduce_for(measure_s, member, SIZE_BYTES, lambda: torch.mm(a, b, out=out))
    if not done.is_right:
        return Share(seconds=None, reason="the sum of the all-reduce is wrong")
    return Share(seconds=fmean(done.whole_s), own_s=fmean(done.own_s))
