"""Netlink messages: their layout, messages that are ignored, and the thread that reads them."""

import socket
import struct
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.agent.samplers.link_events import LinkListener, LinkMessage, read_messages

NEWLINK, DELLINK, IFF_UP = 16, 17, 1


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def link(
    *attributes: bytes, kind: int = NEWLINK, family: int = socket.AF_UNSPEC, index: int = 7, flags: int = IFF_UP
) -> bytes:
    body = struct.pack("=BxHiII", family, 1, index, flags, 0) + b"".join(attributes)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


WHOLE = link(
    *(attribute(3, b"data0\0"), attribute(1, bytes.fromhex("024200000001")), attribute(33, b"\1")),
    *(attribute(35, struct.pack("=I", 9)), attribute(47, struct.pack("=I", 4)), attribute(48, struct.pack("=I", 5))),
)


def test_netlink_message_is_decoded_in_the_layout_of_the_kernel() -> None:
    assert list(read_messages(WHOLE, 11)) == [
        LinkMessage(
            at_ns=11,
            index=7,
            name="data0",
            address="02:42:00:00:00:01",
            is_deleted=False,
            is_put_up=True,
            has_carrier=True,
            downs=5,
            ups=4,
            changes=9,
        )
    ]


def test_several_messages_in_one_datagram_are_all_read() -> None:
    gone = link(attribute(3, b"eth1\0"), kind=DELLINK, flags=0)
    assert [(one.name, one.is_deleted) for one in read_messages(WHOLE + gone + WHOLE, 0)] == [
        ("data0", False),
        ("eth1", True),
        ("data0", False),
    ]


def test_fields_that_an_old_kernel_does_not_send_are_none() -> None:
    (message,) = read_messages(link(attribute(3, b"eth0\0")), 0)
    assert (message.has_carrier, message.downs, message.ups, message.changes) == (None, None, None, None)


@pytest.mark.parametrize("family", [socket.AF_INET6, socket.AF_BRIDGE if hasattr(socket, "AF_BRIDGE") else 7])
def test_messages_of_the_bridge_and_ipv6_families_are_ignored(family: int) -> None:
    assert list(read_messages(link(family=family), 0)) == []


@given(data=st.binary(max_size=200) | st.builds(lambda cut, tail: WHOLE[:cut] + tail, st.integers(0, 90), st.binary()))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_decoder_raises_no_error_for_any_bytes(data: bytes) -> None:
    for message in read_messages(data, 1):
        assert message.at_ns == 1


def test_closing_the_listener_ends_its_thread_and_may_be_repeated() -> None:
    before = threading.active_count()
    listener = LinkListener()
    assert threading.active_count() == before + 1
    listener.close()
    listener.close()
    assert threading.active_count() == before
    assert listener.drain() == []
