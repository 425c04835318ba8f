"""The file that a user gets of a profile: Kineto's trace on the clock of the rank's spans, compressed by gzip.

    Kineto   { ... "baseTimeNanoseconds": B,                                  "traceEvents": [ {"ts": T ...
    here     { ... "rankscope": {...}, "baseTimeNanoseconds": B + offset,     "traceEvents": [ {"ts": T ...

``baseTimeNanoseconds`` is added to each ``ts``, so one number moves the whole trace. The same trace always gives the
same bytes, so a part that is sent again has the same content.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from telemetry.profiles import ProfileOutcome

PIECE_BYTES = 2**20
MAX_HEAD_BYTES = 64 * 2**20
"""The head lists the process groups of the job."""
PART_BYTES = 2 * 2**20
"""Compressed size of one part that is sent."""
_EVENTS = b'"traceEvents"'
_BASE = re.compile(rb'"baseTimeNanoseconds":\s*(\d{1,19})')
_GZIP = 31
"""``wbits`` of zlib: a gzip header, without a time."""


def file_name(rank: int) -> str:
    """The name of the file of a rank."""
    return f"rank-{rank:05d}.json.gz"


def about_file(run_id: str, attempt: int, rank: int, outcome: ProfileOutcome) -> dict[str, object]:
    """The facts about a profile that its file contains."""
    return {
        "run": run_id,
        "attempt": attempt,
        "rank": rank,
        "profile": outcome.profile_id,
        "first_step": outcome.first_step,
        "last_step": outcome.last_step,
        "clock_offset_ns": outcome.clock_offset_ns,
        "clock_error_ns": outcome.clock_error_ns,
    }


def compressed_parts(
    trace: BinaryIO, *, offset_ns: int, about: Mapping[str, object], part_bytes: int = PART_BYTES
) -> Iterator[bytes]:
    """The file in parts of about ``part_bytes``.

    Args:
        offset_ns: added to all times.
        about: facts about the profile, written into the file as JSON.

    Raises:
        ValueError: ``trace`` is not a trace of Kineto.
        OSError: ``trace`` cannot be read.
    """
    packer = zlib.compressobj(wbits=_GZIP)
    part = packer.compress(moved(_read_head(trace), offset_ns, about))
    while piece := trace.read(PIECE_BYTES):
        part += packer.compress(piece)
        while len(part) >= part_bytes:
            yield part[:part_bytes]
            part = part[part_bytes:]
    yield part + packer.flush()


def _read_head(trace: BinaryIO) -> bytes:
    head = b""
    while _EVENTS not in head and len(head) < MAX_HEAD_BYTES and (piece := trace.read(PIECE_BYTES)):
        head += piece
    return head


def moved(head: bytes, offset_ns: int, about: Mapping[str, object]) -> bytes:
    """The beginning of a trace, up to its events or beyond, with its times moved.

    Raises:
        ValueError: it has no base time.
    """
    base = _BASE.search(head, 0, head.find(_EVENTS))
    if base is None:
        raise ValueError("the trace has no baseTimeNanoseconds before its events")
    described = f'"rankscope": {json.dumps(dict(about))},\n  "baseTimeNanoseconds": {int(base[1]) + offset_ns}'
    return head[: base.start()] + described.encode() + head[base.end() :]
