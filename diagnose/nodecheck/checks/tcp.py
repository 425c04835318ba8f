"""Checks of TCP between two addresses of this host, with a process at each.

sender (bound to source)                     receiver (listens on target)
   [size][bytes]  64 B .. 1 MiB   ------->   echoes the bytes               finds losses that depend on the size
   [0] blocks, until the time is over ---->  compares each block, counts bytes by time

The kernel keeps traffic between local addresses inside the host, unless routes say otherwise (namespaces, policy
routing). So the checks find wrong routes and firewalls and measure the network stack. Usually they do not
test the wire.
"""

import socket
import struct
import time
from functools import partial

import numpy as np

from diagnose.nodecheck.child_processes import run_bounded
from diagnose.nodecheck.network import Interface
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

LOOPBACK = "loopback"
NIC_PAIR = "nic-pair"

PROBE_BYTES = (64, 1024, 9000, 65536, 1 << 20)
BLOCK_BYTES = 1 << 20
SAMPLE_S = 0.05
ANSWER_S = 5.0
HEADER = struct.Struct("!Q")


class StreamError(Exception):
    """Bytes were lost or changed, or did not arrive."""


def loopback(*, interface: Interface, measure_s: float) -> CheckResult:
    """GB/s of a stream from an interface's address to itself, after echoes of several sizes."""
    subject = f"{interface.name} {interface.address}"
    return _check(LOOPBACK, subject, "loopback_gb_s", interface, interface, measure_s)


def nic_pair(*, source: Interface, target: Interface, measure_s: float) -> CheckResult:
    """GB/s of a stream from one interface to another, after echoes of several sizes."""
    return _check(NIC_PAIR, f"{source.name} -> {target.name}", "nic_pair_gb_s", source, target, measure_s)


def _check(check: str, subject: str, name: str, source: Interface, target: Interface, measure_s: float) -> CheckResult:
    try:
        samples = stream(source.address, target.address, measure_s)
    except (StreamError, OSError) as error:
        return failed(check, subject, str(error))
    alike = f"{source.speed_mbps} -> {target.speed_mbps} Mbit/s" if source.speed_mbps and target.speed_mbps else ""
    return measured(check, subject, name, samples, alike=alike)


def stream(source: str, target: str, measure_s: float) -> list[float]:
    """GB/s as the receiver counts them, one sample each 50 ms.

    Raises:
        StreamError: no connection, no answer within 5 s, or wrong bytes.
    """
    with socket.create_server((target, 0)) as listener:
        port = listener.getsockname()[1]
        calls = (partial(_receive, listener), partial(_send, source, (target, port), measure_s))
        received, sent = run_bounded(calls, measure_s + 2 * ANSWER_S)
    if sent.error or received.error:
        raise StreamError(sent.error or received.error)
    samples: list[float] = received.value
    return samples


def _payload(size_bytes: int) -> bytes:
    return np.random.default_rng(size_bytes).bytes(size_bytes)


def _send(source: str, target: tuple[str, int], measure_s: float) -> None:
    with socket.create_connection(target, ANSWER_S, source_address=(source, 0)) as peer:
        for size_bytes in PROBE_BYTES:
            probe = _payload(size_bytes)
            peer.sendall(HEADER.pack(size_bytes) + probe)
            if _receive_exactly(peer, bytearray(size_bytes)) != probe:
                raise StreamError(f"the echo of {size_bytes} bytes differs")
        peer.sendall(HEADER.pack(0))
        block, deadline = _payload(BLOCK_BYTES), time.monotonic() + measure_s
        while time.monotonic() < deadline:
            peer.sendall(block)


def _receive(listener: socket.socket) -> list[float]:
    listener.settimeout(ANSWER_S)
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(ANSWER_S)
        while size_bytes := HEADER.unpack(_receive_exactly(peer, bytearray(HEADER.size)))[0]:
            peer.sendall(_receive_exactly(peer, bytearray(size_bytes)))
        return _count(peer)


def _count(peer: socket.socket) -> list[float]:
    """GB/s of each sample of the stream. The first is in TCP's slow start, so it counts only if there is no other."""
    expected, block = np.frombuffer(_payload(BLOCK_BYTES), np.uint8), bytearray(BLOCK_BYTES)
    samples, begun, count = list[float](), time.perf_counter(), 0
    while _receive_exactly(peer, block):
        if not np.array_equal(np.frombuffer(block, np.uint8), expected):
            raise StreamError("a block of the stream differs")
        count += 1
        passed = time.perf_counter() - begun
        if passed >= SAMPLE_S or not samples:
            samples.append(count * BLOCK_BYTES / GB / passed)
            begun, count = time.perf_counter(), 0
    if not samples:
        raise StreamError("no block of the stream arrived")
    return samples[1:] or samples


def _receive_exactly(peer: socket.socket, room: bytearray) -> bytearray:
    """Fill ``room`` and return it. The result is empty if the connection ended before the first byte.

    Raises:
        StreamError: the connection ended in the middle.
    """
    view, count = memoryview(room), 0
    while count < len(room):
        got = peer.recv_into(view[count:])
        if not got:
            if count:
                raise StreamError(f"the connection ended after {count} of {len(room)} bytes")
            return bytearray()
        count += got
    return room
