"""Each stored tensor is read by one rank. This rank sends it to the other ranks that need it.

    needed by       reader      order of transfers, the same on all ranks
    __0_0 @0    0, 2    0       0 -> 2
    __0_0 @512  0       0
    __1_0 @0    0, 2    2       2 -> 0

All ranks do the transfers in the order of :func:`assign_readers`. A rank leaves out the transfers of tensors that it
does not need. So no two ranks wait for each other. A rank that cannot read a tensor sends the reason instead.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from telemetry.errors import UnreadableError

_FAILED, _WHOLE = 0, 1
"""The last byte of a message."""


class Stored(NamedTuple):
    """The place of a tensor in a checkpoint."""

    file: str
    offset: int
    length: int
    """Bytes."""


def assign_readers(needs: Sequence[Sequence[Stored]]) -> dict[Stored, tuple[int, ...]]:
    """Each tensor in the order of its transfer, with the ranks that need it, its reader first.

    ``needs``: the tensors that each rank needs. The readers of all tensors have about the same number of bytes.
    """
    wanted: dict[Stored, list[int]] = {}
    for rank, own in enumerate(needs):
        for stored in set(own):
            wanted.setdefault(stored, []).append(rank)
    assigned, loads = {}, [0] * len(needs)
    for stored, ranks in sorted(wanted.items()):
        reader = min(ranks, key=lambda rank: (loads[rank], rank))
        loads[reader] += stored.length
        assigned[stored] = (reader, *(rank for rank in ranks if rank != reader))
    return assigned


class SharedReads:
    """The transfers of one rank, among all ranks of the default group. Creating it is a collective call.

    ``own``: the tensors that this rank needs.
    """

    def __init__(self, own: Sequence[Stored]) -> None:
        needs: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(needs, sorted(set(own)))
        self._rank = dist.get_rank()
        assigned = assign_readers(needs).items()
        self._left = {stored: ranks for stored, ranks in assigned if self._rank in ranks}
        backend = dist.get_backend()
        self._device = torch.device("cuda", torch.cuda.current_device()) if "nccl" in backend else torch.device("cpu")

    def read(self, stored: Stored, read: Callable[[], bytes]) -> bytes:
        """The bytes of a tensor, from ``read()`` or from its reader. Each tensor is asked for once, in order.

        Raises:
            UnreadableError: the reader of this tensor could not read it.
        """
        reader, *others = self._left.pop(stored)
        if reader != self._rank:
            message = self._receive(stored, reader)
            if message[-1] != _WHOLE:
                reason = message[:-1].rstrip(b"\0").decode(errors="replace")
                raise UnreadableError(reason, hint="an older checkpoint is used if there is one")
            return message[:-1]
        try:
            content = read()
        except Exception as error:
            self._send(_reason_in(stored, error), others)
            raise
        self._send(content + bytes([_WHOLE]), others)
        return content

    def abandon(self, error: Exception) -> None:
        """Take part in the transfers that are left, without reading. The other ranks do not wait for this one."""
        for stored, (reader, *others) in self._left.items():
            if reader == self._rank:
                self._send(_reason_in(stored, error), others)
            else:
                self._receive(stored, reader)
        self._left.clear()

    def _send(self, message: bytes, others: Sequence[int]) -> None:
        tensor = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        for rank in others:
            dist.send(tensor.to(self._device), rank)

    def _receive(self, stored: Stored, reader: int) -> bytes:
        tensor = torch.empty(stored.length + 1, dtype=torch.uint8, device=self._device)
        dist.recv(tensor, reader)
        return tensor.cpu().numpy().tobytes()


def _reason_in(stored: Stored, error: Exception) -> bytes:
    """A message of the same size as the tensor, with the reason why it could not be read."""
    reason = str(error).partition("\n")[0].encode()[: stored.length]
    return reason.ljust(stored.length, b"\0") + bytes([_FAILED])
