"""The format of the files that a rank writes and other processes read.

    SPOOL/<run_id>/<attempt>/agent.log      output of the agent that the ranks started
    SPOOL/<run_id>/<attempt>/hosts/         events of hosts, see evidence/journal.py
    SPOOL/<run_id>/<attempt>/rank-00005/
        meta.json       RankIdentity, rewritten when the rank learns its mesh
        state           the live state page, 4096 bytes, rewritten in place
        000000.rec      segments: a header of 4096 bytes, then records of 64 bytes; a full segment is sealed
        000001.rec      the name is the number of the segment
        000002.rec.new  being made; 000000.rec.gone: being deleted to make room
        shipping        what is acknowledged, in flight and lost: a page of words, see shipping_page.py
        profile/        a profile on demand, see telemetry/profiles.py

A record counts as written when its last field, ``commit``, holds the record's own byte offset in the file. This field
is stored last, so a record that is torn by SIGKILL or still being written does not count. All integers are
little-endian. All times are nanoseconds of CLOCK_MONOTONIC. The segment's anchor ties them to the wall clock.

    record      0        8           16      24          32        40    44    48      52          54
                start_ns duration_ns cpu_ns  size_bytes  issue_ns  step  peer  op_seq  microbatch  chunk
                56    57     58      59           60
                kind  stage  stream  text_length  commit

    a span      kind SPAN: byte 59 holds the SpanClock that it was measured with, 0 in records of older versions
    a mark      kind MARK: at start_ns; op_seq = number of TEXT records that follow; bytes 16..40 its name
    a sample    kind SAMPLE: at start_ns; bytes 8..16 the value as a double; bytes 16..40 the metric's name
    a text      kind TEXT: bytes 0..40 hold text_length bytes of UTF-8
"""

import struct
from enum import IntEnum

import numpy as np

RECORD_BYTES = 64
HEADER_BYTES = 4096
STATE_BYTES = 4096
SEGMENT_MAGIC = b"RSCOPE01"
NAME_BYTES = 24
TEXT_BYTES = 40
MAX_TEXT_BYTES = 4000
AGENT_LOG_NAME = "agent.log"
META_NAME = "meta.json"
RANK_FOLDER_DEPTH = 3
"""Run, attempt and rank: rankscope chose these names of a rank's folder. The user named the spool above them."""
ATTEMPT_FOLDER_DEPTH = RANK_FOLDER_DEPTH - 1
MAX_MARK_RECORDS = 1 + MAX_TEXT_BYTES // TEXT_BYTES


class RecordKind(IntEnum):
    """The kind of data in a record."""

    SPAN = 1
    MARK = 2
    SAMPLE = 3
    TEXT = 4


RECORD = np.dtype(
    [
        ("start_ns", "<i8"),
        ("duration_ns", "<i8"),
        ("cpu_ns", "<i8"),
        ("size_bytes", "<i8"),
        ("issue_ns", "<i8"),
        ("step", "<u4"),
        ("peer", "<i4"),
        ("op_seq", "<u4"),
        ("microbatch", "<i2"),
        ("chunk", "<i2"),
        ("kind", "u1"),
        ("stage", "u1"),
        ("stream", "u1"),
        ("text_length", "u1"),
        ("commit", "<u4"),
    ]
)
assert RECORD.itemsize == RECORD_BYTES

SEGMENT_HEADER = struct.Struct("<8sQQQqq")
"""Magic; number of the first record; records that the segment can hold; 1 if it is sealed; anchor: monotonic, wall."""
SEALED_OFFSET = 24

STATE_MAGIC = int.from_bytes(b"RSSTATE1", "little")
STATE_VERSION = 1
STATE_STARTED = 1
STATE_ENDED = 2
STATE_FAILED = 4
MAX_STAGES = 64
MAX_OPERATIONS = 48

STATE_PAGE = np.dtype(
    {
        "names": [
            "magic", "version", "pid", "flags", "step", "step_started_ns", "beat_ns", "recorded", "dropped",
            "anchor_monotonic_ns", "anchor_wall_ns", "num_operations", "dropped_before", "identity_ns", "profile",
            "open_since", "operations",
        ],
        "formats": ["<i8"] * 15 + [("<i8", MAX_STAGES), ("<i8", (MAX_OPERATIONS, 8))],
        "offsets": [8 * word for word in range(15)] + [8 * 16, 8 * 128],
        "itemsize": STATE_BYTES,
    }
)  # fmt: skip
WORD_FLAGS, WORD_STEP, WORD_STEP_STARTED, WORD_BEAT, WORD_RECORDED, WORD_DROPPED = 3, 4, 5, 6, 7, 8
WORD_NUM_OPERATIONS, WORD_DROPPED_BEFORE, WORD_IDENTITY, WORD_PROFILE, WORD_OPEN_SINCE = 11, 12, 13, 14, 16
WORD_OPERATIONS = 128
"""WORD_IDENTITY: ``started_ns`` of an identity that was rewritten while the rank recorded; 0 if it was not.
WORD_PROFILE is the only word that another process writes: a new value means that there is a new file
``profile/request``."""
OPERATION_WORDS = 8
AXES_BIAS = 16
"""First word of a row of ``operations``: -1, or this plus the bit mask of the group's axes. Older pages hold 0, 1 or 2
for dp, pp or tp: the bits of a plain mesh."""

SHIPPING_MAGIC = int.from_bytes(b"RSSHIP01", "little")
SHIPPING_BYTES = 4096
WORD_ACKED, WORD_SENDING, WORD_ACKED_NS, WORD_LOST_BELOW, WORD_OPENED = 1, 2, 3, 4, 8

_MARK = struct.Struct("l8x24sI4xI4xII")
_TEXT = struct.Struct("40s16xII")


def name_bytes(name: str) -> bytes:
    """The first bytes of a name, cut between characters."""
    raw = name.encode(errors="replace")
    return raw if len(raw) <= NAME_BYTES else raw[:NAME_BYTES].decode(errors="ignore").encode()


def text_pieces(text: str) -> list[bytes]:
    """The part of a text that fits, in pieces of one record each. A character may be split between two pieces."""
    raw = text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
    return [raw[start : start + TEXT_BYTES] for start in range(0, len(raw), TEXT_BYTES)]


def pack_mark(at_ns: int, name: bytes, step: int, pieces: list[bytes], place: int) -> bytes:
    """A mark and its texts, for byte ``place`` of a segment."""
    mark = _MARK.pack(at_ns, name, step, len(pieces), RecordKind.MARK, place)
    texts = (pack_text(piece, place + RECORD_BYTES * number) for number, piece in enumerate(pieces, start=1))
    return mark + b"".join(texts)


def pack_text(piece: bytes, place: int) -> bytes:
    """A text record for byte ``place`` of a segment. An empty text is padding."""
    return _TEXT.pack(piece, RecordKind.TEXT | len(piece) << 24, place)
