"""Bytes over TCP between two addresses of this host, two processes: small and large messages echoed, then a stream.

sender (bound to source)                     receiver (listens on target)
   [size][bytes]  64 B .. 1 MiB   ------->   the same bytes back           loss that depends on the size is seen
   [0] blocks, until the time is over ---->  compares each block; counts by time
"""

import socket
import struct
import time
from functools import partial

import numpy as np

from diagnose.nodecheck.bounded import run_bounded
from diagnose.nodecheck.result import GB

PROBE_BYTES = (64, 1024, 9000, 65536, 1 << 20)
BLOCK_BYTES = 1 << 20
SAMPLE_S = 0.05
ANSWER_S = 5.0
HEADER = struct.Struct("!Q")


class StreamError(Exception):
    """Bytes were lost, changed, or did not come."""


def stream(source: str, target: str, measure_s: float) -> list[float]:
    """GB/s by the receiver's count, a sample every 50 ms.

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
            if _exactly(peer, bytearray(size_bytes)) != probe:
                raise StreamError(f"{size_bytes} bytes came back changed")
        peer.sendall(HEADER.pack(0))
        block, deadline = _payload(BLOCK_BYTES), time.monotonic() + measure_s
        while time.monotonic() < deadline:
            peer.sendall(block)


def _receive(listener: socket.socket) -> list[float]:
    listener.settimeout(ANSWER_S)
    peer, _ = listener.accept()
    with peer:
        peer.settimeout(ANSWER_S)
        while size_bytes := HEADER.unpack(_exactly(peer, bytearray(HEADER.size)))[0]:
            peer.sendall(_exactly(peer, bytearray(size_bytes)))
        return _count(peer)


def _count(peer: socket.socket) -> list[float]:
    """The first sample, one block in TCP's slow start, counts only when there is no other."""
    expected, block = np.frombuffer(_payload(BLOCK_BYTES), np.uint8), bytearray(BLOCK_BYTES)
    samples, begun, count = list[float](), time.perf_counter(), 0
    while _exactly(peer, block):
        if not np.array_equal(np.frombuffer(block, np.uint8), expected):
            raise StreamError("a block of the stream came changed")
        count += 1
        passed = time.perf_counter() - begun
        if passed >= SAMPLE_S or not samples:
            samples.append(count * BLOCK_BYTES / GB / passed)
            begun, count = time.perf_counter(), 0
    if not samples:
        raise StreamError("no block of the stream came")
    return samples[1:] or samples


def _exactly(peer: socket.socket, room: bytearray) -> bytearray:
    """Fills ``room``; empty when the peer has ended before the first byte.

    Raises:
        StreamError: the peer ended in the middle.
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
