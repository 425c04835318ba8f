"""Link changes that the kernel reports over netlink, each with the wall-clock time of its arrival.

    kernel --RTM_NEWLINK, RTM_DELLINK--> socket --thread: recv, stamp--> queue --drain()--> NicSampler

A message holds the whole state of a link at that moment: flags, carrier, and how often the carrier was lost and gained.
So if a message is lost (ENOBUFS, a full queue), the time of a change is lost, but no count. The kernel sends several
messages for one change, and one message for several fast changes. A physical NIC may delay a message for up to a
second.

    nlmsghdr   length:4 type:2 flags:2 sequence:4 port:4
    ifinfomsg  family:1 pad:1 device-type:2 index:4 flags:4 change:4
    attribute  length:2 type:2 value, padded to 4            (repeated)

Each loss of a link is reported exactly once:

    netlink: (state, count) on arrival --.
    files:   (state, count) as read -----+--observe--> LINK_DOWN  LINK_UP  LINK_FLAPS  LINK_TAKEN_DOWN
                                              |
                     counted: the kernel's count as far as it has been reported

The kernel's count is exact, but not every state is observed. If the link was up at the last observation and is down
now, one of the losses since then is reported as LINK_DOWN (or LINK_TAKEN_DOWN by its owner). The other losses since
then were not observed: LINK_FLAPS. So in any period

    LINK_DOWN + sum(LINK_FLAPS) + LINK_TAKEN_DOWN with a lost carrier == growth of the kernel's count

This leaves out LINK_DOWN of a link that was down when sampling began: its text begins with ``LINK_ALREADY_DOWN``.
"""

import errno
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from telemetry.agent.samplers.interface import Event
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening


class LinkState(Enum):
    UP = "up"
    DOWN = "down"
    TAKEN_DOWN = "taken down"


class LinkLedger:
    """The state and the reported losses of one link. Observations must be in order of time."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.state: LinkState | None = None
        """The last reported state. None before the first observation."""
        self._counted: int | None = None
        self._is_ahead = False
        """Whether a loss was reported that the kernel had not counted yet."""

    def observe(self, at_ns: int, state: LinkState, downs: int | None, why: str) -> list[Event]:
        """Add an observation and return new events. ``downs``: the kernel's count of losses; None if it has none.

        If the count falls, the device was reset. Losses during the reset are not reported.
        """
        unobserved = self._growth(downs)
        before, self.state = self.state, state
        if before is None and state is LinkState.UP:
            return []
        if before is None:
            name = Happening.LINK_DOWN if state is LinkState.DOWN else Happening.LINK_TAKEN_DOWN
            return [self._event(at_ns, name, f"{LINK_ALREADY_DOWN} when sampling began: {why}")]
        if before is LinkState.UP and state is LinkState.UP and not unobserved:
            self._is_ahead = False  # the kernel did not count the reported loss
            return []
        if state is LinkState.UP:
            came = [] if before is state else [self._event(at_ns, Happening.LINK_UP, why)]
            return self._flaps(at_ns, unobserved) + came
        if before is LinkState.UP and not unobserved:
            self._is_ahead = True
            return [self._lost(at_ns, state, why, counted=True)]
        return self._stays_lost(at_ns, before, state, unobserved, why)

    def _stays_lost(self, at_ns: int, before: LinkState, state: LinkState, unobserved: int, why: str) -> list[Event]:
        """Events of a link that is not up now. It may have been up between the last observation and this one."""
        if before is state:
            return self._flaps(at_ns, unobserved)
        if unobserved:
            return [*self._flaps(at_ns, unobserved - 1), self._lost(at_ns, state, why, counted=True)]
        if state is LinkState.TAKEN_DOWN:
            return [self._lost(at_ns, state, why, counted=False)]
        self.state = before  # set up again by its owner, still without a carrier: not a new loss
        return []

    def _growth(self, downs: int | None) -> int:
        if downs is None:
            return 0
        before, self._counted = self._counted, downs
        if before is None:
            return 0
        growth = downs - before
        if growth > 0 and self._is_ahead:
            growth -= 1
        if downs != before:
            self._is_ahead = False
        return max(growth, 0)

    def _lost(self, at_ns: int, state: LinkState, why: str, *, counted: bool) -> Event:
        if state is LinkState.DOWN:
            return self._event(at_ns, Happening.LINK_DOWN, why)
        cost = "this removed its carrier" if counted else "it had no carrier"
        return self._event(at_ns, Happening.LINK_TAKEN_DOWN, f"taken down by its owner; {cost}")

    def _flaps(self, at_ns: int, unobserved: int) -> list[Event]:
        return [self._event(at_ns, Happening.LINK_FLAPS, str(unobserved))] if unobserved else []

    def _event(self, at_ns: int, name: Happening, text: str) -> Event:
        return Event(at_ns=at_ns, device=self.device, name=name, text=text)


BUFFER_BYTES = 4 << 20
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_NUMBER = struct.Struct("=I")
_NEWLINK, _DELLINK = 16, 17
_GROUP_LINK = 1
_IFF_UP = 0x1
_ADDRESS, _NAME, _CARRIER, _CHANGES, _UPS, _DOWNS = 1, 3, 33, 35, 47, 48
_TYPE_MASK = 0x3FFF
_SO_RCVBUFFORCE = 33
_LARGEST_MESSAGE = 1 << 16
_AT_MOST_WAITING = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkMessage:
    """The state of one link in a netlink message. ``at_ns``: wall clock of arrival."""

    at_ns: int
    index: int
    name: str
    address: str
    """``02:42:...``; empty without an address."""
    is_deleted: bool
    is_put_up: bool
    has_carrier: bool | None
    """None, like the numbers below, if the kernel is too old to report it."""
    downs: int | None
    ups: int | None
    changes: int | None


class LinkNews(Protocol):
    """Source of link messages. The methods do not block. Lost messages are not reported."""

    def drain(self) -> list[LinkMessage]:
        """The messages since the last call, in order of arrival."""

    def close(self) -> None:
        """Stop receiving messages. Safe to repeat."""


class LinkListener:
    """Follows the links of the network namespace of the creating thread. Messages beyond ``buffer_bytes`` are lost.

    Raises:
        OSError: netlink is not available.
    """

    def __init__(self, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._waiting: deque[LinkMessage] = deque(maxlen=_AT_MOST_WAITING)
        self._socket = _listening_socket(buffer_bytes)
        self._wake_end, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._listen, name="rankscope-links", daemon=True)
        self._thread.start()

    def drain(self) -> list[LinkMessage]:
        messages = []
        with suppress(IndexError):
            while True:
                messages.append(self._waiting.popleft())
        return messages

    def close(self) -> None:
        if self._wake < 0:
            return
        os.close(self._wake)
        self._wake = -1
        self._thread.join()
        os.close(self._wake_end)
        self._socket.close()

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake_end, select.POLLIN)
        while all(descriptor != self._wake_end for descriptor, _ in poll.poll()):
            try:
                data, (sender, _) = self._socket.recvfrom(_LARGEST_MESSAGE)
            except OSError as error:
                if error.errno in (errno.ENOBUFS, errno.EINTR, errno.EAGAIN):
                    continue
                return
            if sender == 0:  # from the kernel: other processes may write to the group too
                self._waiting.extend(read_messages(data, time.time_ns()))


def _listening_socket(buffer_bytes: int) -> socket.socket:
    news = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        news.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        with suppress(OSError):  # above the system's limit, where that is permitted
            news.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        news.bind((0, _GROUP_LINK))
    except OSError:
        news.close()
        raise
    news.setblocking(False)
    return news


def read_messages(data: bytes, at_ns: int) -> Iterator[LinkMessage]:
    """The links in a datagram. Truncated messages and other kinds are left out."""
    start = 0
    while start + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, start)
        end = start + length
        if length < _HEADER.size or end > len(data):
            return
        if kind in (_NEWLINK, _DELLINK) and length >= _HEADER.size + _LINK.size:
            family, _, index, flags, _ = _LINK.unpack_from(data, start + _HEADER.size)
            if family == socket.AF_UNSPEC:  # bridges and IPv6 send separate messages about the same links
                attributes = _attributes(data, start + _HEADER.size + _LINK.size, end)
                yield _message(at_ns, index, kind == _DELLINK, bool(flags & _IFF_UP), attributes)
        start += _padded(length)


def _attributes(data: bytes, start: int, end: int) -> dict[int, bytes]:
    found = {}
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < _ATTRIBUTE.size or start + length > end:
            break
        found[kind & _TYPE_MASK] = data[start + _ATTRIBUTE.size : start + length]
        start += _padded(length)
    return found


def _message(at_ns: int, index: int, is_deleted: bool, is_put_up: bool, attributes: dict[int, bytes]) -> LinkMessage:
    carrier = attributes.get(_CARRIER)
    return LinkMessage(
        at_ns=at_ns,
        index=index,
        name=attributes.get(_NAME, b"").rstrip(b"\0").decode(errors="replace"),
        address=attributes.get(_ADDRESS, b"").hex(":"),
        is_deleted=is_deleted,
        is_put_up=is_put_up,
        has_carrier=carrier[0] != 0 if carrier else None,
        downs=_number(attributes.get(_DOWNS)),
        ups=_number(attributes.get(_UPS)),
        changes=_number(attributes.get(_CHANGES)),
    )


def _number(value: bytes | None) -> int | None:
    return None if value is None or len(value) < _NUMBER.size else int(_NUMBER.unpack_from(value)[0])


def _padded(length: int) -> int:
    return (length + 3) & ~3
