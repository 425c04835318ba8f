"""Names and texts as bytes in records of fixed size."""

import struct

from telemetry.record.layout import MAX_TEXT_BYTES, NAME_BYTES, RECORD_BYTES, TEXT_BYTES, RecordKind

MARK = struct.Struct("l8x24sI4xI4xII")
TEXT = struct.Struct("40s16xII")


def name_bytes(name: str) -> bytes:
    """The first bytes of a name, cut between characters."""
    raw = name.encode(errors="replace")
    return raw if len(raw) <= NAME_BYTES else raw[:NAME_BYTES].decode(errors="ignore").encode()


def text_pieces(text: str) -> list[bytes]:
    """What fits of a text, in pieces of a record each; a character may lie across two."""
    raw = text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore").encode()
    return [raw[start : start + TEXT_BYTES] for start in range(0, len(raw), TEXT_BYTES)]


def pack_mark(at_ns: int, name: bytes, step: int, pieces: list[bytes], place: int) -> bytes:
    """A mark and its texts, as they stand from byte ``place`` of a segment on."""
    mark = MARK.pack(at_ns, name, step, len(pieces), RecordKind.MARK, place)
    texts = (pack_text(piece, place + RECORD_BYTES * number) for number, piece in enumerate(pieces, start=1))
    return mark + b"".join(texts)


def pack_text(piece: bytes, place: int) -> bytes:
    """A text record at byte ``place`` of a segment; an empty one is padding."""
    return TEXT.pack(piece, RecordKind.TEXT | len(piece) << 24, place)
