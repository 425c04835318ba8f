"""The reader's end of a rank file: records from any number on, while the rank writes, hangs, or is long dead.

    reader = RankReader(folder)
    block = reader.read(from_seq=acked)      # committed records of one segment, with the segment's anchor
    ... ship it ...
    reader.reclaim(block.next_seq)           # sealed segments wholly below are deleted

A block never crosses segments and never parts a mark from its texts.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.clocks.host import Anchor
from telemetry.errors import UnreadableError, UsageError
from telemetry.record import layout
from telemetry.record.decode import decode_marks, decode_samples, decode_spans, whole_marks
from telemetry.record.rank_file import META_NAME
from telemetry.record.segments import (
    SegmentHeader,
    list_segments,
    read_header,
    read_records,
    take_back,
)
from telemetry.record.shipping_page import read_acked
from telemetry.record.state_page import LiveState, read_state
from telemetry.records import RankIdentity
from telemetry.topology import Topology

__all__ = [
    "MAX_RECORDS",
    "RankReader",
    "RecordBlock",
    "decode_marks",
    "decode_samples",
    "decode_spans",
    "find_rank_dirs",
]

MAX_RECORDS = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Consecutive committed records, numbered from ``first_seq``."""

    first_seq: int
    records: NDArray[np.void]
    """Of dtype ``layout.RECORD``, all kinds; times are CLOCK_MONOTONIC."""
    anchor: Anchor
    lost: int
    """Records between the number asked for and ``first_seq`` that nobody can read any more."""

    @property
    def next_seq(self) -> int:
        """Where to read on."""
        return self.first_seq + len(self.records)

    @property
    def wall_offset_ns(self) -> int:
        """What to add to the records' times to get nanoseconds since the epoch."""
        return self.anchor.wall_ns - self.anchor.monotonic_ns


class RankReader:
    """The folder of one rank. Holds no file open; several may read at a time, one may reclaim."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def identity(self) -> RankIdentity:
        """Who writes here.

        Raises:
            UnreadableError: ``meta.json`` is missing or damaged.
        """
        path = self.folder / META_NAME
        try:
            return _identity_from(json.loads(path.read_text()))
        except OSError as error:
            raise UnreadableError(f"{path}: {error.strerror}", hint="is this the folder of a rank?") from error
        except (ValueError, TypeError, KeyError, RecursionError, UsageError) as error:
            raise UnreadableError(
                f"{path} does not say who recorded ({error})", hint="move this rank's folder away"
            ) from error

    def read(self, from_seq: int = 0, max_records: int = MAX_RECORDS) -> RecordBlock:
        """Committed records from ``from_seq`` on, at most ``max_records`` (a mark with its texts may exceed that); an
        empty block when there are none yet. A segment that is no segment is passed over: its records are lost.

        Raises:
            UnreadableError: a segment is no segment, and all the others hold was read; or one cannot be opened now.
        """
        segments, damage = self._segments()
        for path, header in segments:
            if header.end_seq <= from_seq:
                continue
            try:
                block = _block_of(path, header, from_seq, max_records)
            except UnreadableError as error:
                if not _is_gone(error):
                    raise
                continue
            if len(block.records) or damage is None:
                return block
            break
        if damage is not None:
            raise damage
        return _nothing(from_seq)

    def end_seq(self, from_seq: int = 0) -> int:
        """One past the last committed record, looking from ``from_seq`` on."""
        while (block := self.read(from_seq)).next_seq > from_seq:
            from_seq = block.next_seq
        return from_seq

    def acked(self) -> int:
        """The number of the next record to ship, as last acknowledged; 0 where nothing was."""
        return read_acked(self.folder)

    def first_end(self, from_seq: int) -> int:
        """One past the last number of the first segment that may hold records from ``from_seq`` on; ``from_seq`` where
        there is none."""
        segments, _ = self._segments()
        return next((header.end_seq for _, header in segments if header.end_seq > from_seq), from_seq)

    def take_back(self) -> bool:
        """Bring segments back into sight that their writer is about to delete; whether there were any. Whether they
        are deleted all the same is for :class:`ShippingPage` to say."""
        return take_back(self.folder)

    def reclaim(self, next_seq: int) -> int:
        """Delete sealed segments whose records all lie below ``next_seq``; how many."""
        segments, _ = self._segments()
        done = [path for path, header in segments if header.sealed and header.end_seq <= next_seq]
        for path in done:
            path.unlink(missing_ok=True)
        return len(done)

    def live(self) -> LiveState:
        """The state page.

        Raises:
            UnreadableError: there is none, or it is damaged.
        """
        return read_state(self.folder)

    def _segments(self) -> tuple[list[tuple[Path, SegmentHeader]], UnreadableError | None]:
        """Readable segments, the oldest first, and what is wrong with the first that is no segment. One that the
        writer or another agent deletes under our eyes is not there.

        Raises:
            UnreadableError: a segment cannot be opened for now; to pass it over would lose what it holds.
        """
        found: list[tuple[Path, SegmentHeader]] = []
        damage: UnreadableError | None = None
        for path in list_segments(self.folder):
            try:
                found.append((path, read_header(path)))
            except UnreadableError as error:
                if _is_gone(error):
                    continue
                if isinstance(error.__cause__, OSError):
                    raise
                damage = damage or error
        return found, damage


def _is_gone(error: UnreadableError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _block_of(path: Path, header: SegmentHeader, from_seq: int, max_records: int) -> RecordBlock:
    """What one segment holds from ``from_seq`` on."""
    first = max(from_seq, header.first_seq)
    room = max_records + layout.MAX_MARK_RECORDS
    committed = read_records(path, header, from_seq=first, max_records=room)
    records = whole_marks(committed, max_records)
    if header.sealed and not len(records):
        # The writer died inside a mark: its texts will never come, and what follows must not wait for them.
        records = committed
    return RecordBlock(
        first_seq=first,
        records=records,
        anchor=Anchor(monotonic_ns=header.anchor_monotonic_ns, wall_ns=header.anchor_wall_ns),
        lost=first - from_seq,
    )


def _identity_from(fields: dict[str, Any]) -> RankIdentity:
    """An identity whose every value has its type and fits the ``ranks`` table."""
    opened = {"opened_ns": fields["started_ns"]}  # what an older version wrote does not say
    identity = RankIdentity(**{**opened, **fields, "topology": Topology(**fields["topology"])})
    topology = identity.topology
    numbers = {name: getattr(identity, name) for name in ("attempt", "rank", "local_rank", "pid")}
    numbers |= {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp}
    for name, value in numbers.items():
        _check_number(name, value, below=2**32)
    _check_number("started_ns", identity.started_ns, below=2**63)
    _check_number("opened_ns", identity.opened_ns, below=2**63)
    words = {"run_id": identity.run_id, "host": identity.host, **identity.meta}
    for name, word in words.items():
        if not isinstance(word, str):
            raise TypeError(f"{name} is {word!r}, no text")
    f"{identity.run_id} {identity.host}".encode()  # JSON may hold halves of letters, which no table takes
    if identity.rank >= topology.world_size:
        raise ValueError(f"rank {identity.rank} has no place in {topology}")
    return identity


def _check_number(name: str, value: object, *, below: int) -> None:
    # What JSON calls true is a number in Python.
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{name} is {value!r}, no number from 0 to {below - 1}")


def _nothing(from_seq: int) -> RecordBlock:
    return RecordBlock(
        first_seq=from_seq, records=np.zeros(0, layout.RECORD), anchor=Anchor(monotonic_ns=0, wall_ns=0), lost=0
    )


def find_rank_dirs(spool: Path, run: str | None = None, attempt: int | None = None) -> list[Path]:
    """Folders of ranks below ``spool``, of one run and attempt or of all, in order of run, attempt and rank."""
    pattern = f"{'*' if run is None else _literally(run)}/{'*' if attempt is None else attempt}/rank-*"
    found = [path for path in Path(spool).glob(pattern) if path.is_dir() and path.parent.name.isdigit()]
    return sorted(found, key=lambda path: (path.parent.parent.name, int(path.parent.name), path.name))


def _literally(name: str) -> str:
    """A run's name for use in a pattern: nothing in it is special."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in name)
