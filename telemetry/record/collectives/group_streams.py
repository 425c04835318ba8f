"""The streams that a new group transfers on: those of NCCL, also where it makes its communicator at once."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.collectives.transfer_streams import Transfers, wants_high_priority
from telemetry.record.session import RECORDER


def transfers_of(inner: dist.ProcessGroup) -> Transfers:
    for device in inner._device_types:
        backend = inner._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if device.type == "cuda" and backend.name() == dist.Backend.NCCL:
            return Transfers(cuda=torch.cuda, high_priority=wants_high_priority(backend.options))
    return Transfers(cuda=None)


def before_group(keywords: dict[str, Any]) -> Callable[[], Transfers] | None:
    """A group that is bound to a device makes its communicator, or splits its parent's, at once: what has the streams
    once the group is made."""
    device = keywords.get("device_id")
    if device is None or not RECORDER.recording():
        return None
    transfers = Transfers(cuda=torch.cuda, high_priority=wants_high_priority(keywords.get("backend_options")))
    noted = transfers.before(None, device.index, early=True)

    def after() -> Transfers:
        transfers.after(None, device.index, noted, early=True)
        return transfers

    return after
