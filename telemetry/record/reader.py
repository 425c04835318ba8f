"""The reader of a rank file: records from any number on, while the rank writes, hangs, or after it has ended.

    reader = RankReader(folder)
    block = reader.read(from_seq=acked)      # committed records of one segment, with the segment's anchor
    ... ship it ...
    reader.reclaim(block.next_seq)           # sealed segments wholly below are deleted

A block is part of one segment, and a mark and its texts are never separated. Rank folders have the path
``SPOOL/<run>/<attempt>/rank-00003/``.
"""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import UnreadableError, UnsafeFolderError, UsageError
from telemetry.files.private_files import Folder, open_folder
from telemetry.record import layout
from telemetry.record.clocks.interface import Anchor
from telemetry.record.segments import (
    SegmentHeader,
    list_segments,
    read_header,
    read_records,
    take_back,
    whole_marks,
)
from telemetry.record.shipping_page import read_acked
from telemetry.record.state_page import LiveState, read_state
from telemetry.records import RankIdentity, identity_from
from telemetry.settings import spool_of

MAX_RECORDS = 65536
MAX_META_BYTES = 2**20


def find_rank_dirs(spool: Path, run: str | None = None, attempt: int | None = None) -> list[Path]:
    """Folders of ranks below ``spool``, of one run and attempt or of all, in order of run, attempt and rank."""
    found = [folder for name in _run_names(Path(spool), run) for folder in _rank_dirs(Path(spool), name, attempt)]
    return sorted(found, key=lambda path: (path.parent.parent.name, int(path.parent.name), path.name))


def no_rank_file(spool: Path) -> UsageError:
    """The error for a folder without rank files. Its hint names the folders of a driven job, if ``spool`` is in one."""
    of_nodes = sorted(path for job in (spool, spool.parent) for path in job.glob("drive/nodes/*/spool"))
    if of_nodes:
        hint = f"the ranks of a driven job write into a folder for each node: --spool {of_nodes[0]}"
    else:
        hint = f"use --spool with the folder into which ranks write. Their default folder is {spool_of()}"
    return UsageError(f"no rank file under {spool}", hint=hint)


def _run_names(spool: Path, run: str | None) -> list[str]:
    if run is not None:
        return [] if run in ("", ".", "..") or "/" in run else [run]
    try:
        return os.listdir(spool)
    except OSError:
        return []


def _rank_dirs(spool: Path, run: str, attempt: int | None) -> list[Path]:
    """Folders of one run, and links in their place. Folders that this process may not read are left out."""
    found: list[Path] = []
    with suppress(OSError), open_folder(spool / run, below=1) as folder:
        for name in folder.names():
            if name.isascii() and name.isdecimal() and attempt in (None, int(name)):
                with suppress(OSError), folder.folder(name) as attempt_folder:
                    found += [
                        attempt_folder.path / rank for rank in attempt_folder.names() if _is_rank(attempt_folder, rank)
                    ]
    return found


def _is_rank(attempt_folder: Folder, name: str) -> bool:
    """Whether this is the folder of a rank. A link or a mount point counts: opening it fails with a message."""
    try:
        return name.startswith("rank-") and attempt_folder.kind(name) in (stat.S_IFDIR, stat.S_IFLNK)
    except UnsafeFolderError:
        return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBlock:
    """Consecutive committed records, numbered from ``first_seq``."""

    first_seq: int
    records: NDArray[np.void]
    """All kinds of records, with dtype ``layout.RECORD``. Times are CLOCK_MONOTONIC."""
    anchor: Anchor
    lost: int
    """Number of records before ``first_seq`` that are no longer readable."""

    @property
    def next_seq(self) -> int:
        """The number from which the next read continues."""
        return self.first_seq + len(self.records)


class RankReader:
    """The folder of one rank. Holds no file open. Several processes may read at a time, one may reclaim."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def identity(self) -> RankIdentity:
        """The identity of the rank that writes here.

        Raises:
            UnreadableError: ``meta.json`` is missing or damaged.
        """
        path = self.folder / layout.META_NAME
        try:
            with self._opened() as folder:
                return identity_from(json.loads(folder.read(layout.META_NAME, MAX_META_BYTES)), uid=folder.owner)
        except UnsafeFolderError as error:
            raise UnreadableError(error.message, hint=error.hint) from error
        except OSError as error:
            raise UnreadableError(
                f"{path}: {error.strerror}", hint="check that this is the folder of a rank"
            ) from error
        except (ValueError, TypeError, KeyError, RecursionError, UsageError) as error:
            raise UnreadableError(
                f"{path} has no valid identity of the rank ({error})", hint="move this rank's folder out of the spool"
            ) from error

    def read(self, from_seq: int = 0, max_records: int = MAX_RECORDS) -> RecordBlock:
        """Committed records from ``from_seq`` on, at most ``max_records`` (a mark with its texts may exceed that). The
        block is empty if there are none yet. A damaged segment is skipped: its records are lost.

        Raises:
            UnreadableError: a segment is damaged, and all others were read; or a segment cannot be opened now.
        """
        with self._opened_if_there() as folder:
            if folder is None:
                return _nothing(from_seq)
            segments, damage = _segments(folder)
            for name, header in segments:
                if header.end_seq <= from_seq:
                    continue
                try:
                    block = _block_of(folder, name, header, from_seq, max_records)
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
        """One past the last committed record, from ``from_seq`` on."""
        while (block := self.read(from_seq)).next_seq > from_seq:
            from_seq = block.next_seq
        return from_seq

    def acked(self) -> int:
        """The number of the next record to ship, as last acknowledged; 0 if none is."""
        return read_acked(self.folder)

    def first_end(self, from_seq: int) -> int:
        """One past the last number of the first segment that may contain records from ``from_seq`` on; ``from_seq`` if
        there is none."""
        with self._opened_if_there() as folder:
            segments = [] if folder is None else _segments(folder)[0]
        return next((header.end_seq for _, header in segments if header.end_seq > from_seq), from_seq)

    def take_back(self) -> bool:
        """Restore the names of segments that their writer is about to delete. Returns whether there were any. They may
        be deleted nevertheless: see :class:`ShippingPage`."""
        with self._opened_if_there() as folder:
            return folder is not None and take_back(folder)

    def reclaim(self, next_seq: int) -> int:
        """Delete sealed segments whose records are all below ``next_seq``. Returns their number."""
        with self._opened_if_there() as folder:
            if folder is None:
                return 0
            segments, _ = _segments(folder)
            done = [name for name, header in segments if header.sealed and header.end_seq <= next_seq]
            for name in done:
                with suppress(FileNotFoundError):
                    folder.remove(name)
            return len(done)

    def live(self) -> LiveState:
        """The state page.

        Raises:
            UnreadableError: there is none, or it is damaged.
        """
        return read_state(self.folder)

    def _opened(self) -> AbstractContextManager[Folder]:
        return open_folder(self.folder, below=layout.RANK_FOLDER_DEPTH)

    @contextmanager
    def _opened_if_there(self) -> Iterator[Folder | None]:
        """None if the folder was deleted.

        Raises:
            UnreadableError: it cannot be opened.
        """
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._opened())
            except FileNotFoundError:
                folder = None
            except OSError as error:
                raise UnreadableError(
                    f"{self.folder}: {error.strerror}", hint="check that this is the folder of a rank"
                ) from error
            yield folder


def _segments(folder: Folder) -> tuple[list[tuple[str, SegmentHeader]], UnreadableError | None]:
    """Readable segments, the oldest first, and the fault of the first file that is not a segment. A segment that the
    writer or another agent deletes meanwhile is left out.

    Raises:
        UnreadableError: a segment cannot be opened now. If it were left out, its records would be lost.
    """
    found: list[tuple[str, SegmentHeader]] = []
    damage: UnreadableError | None = None
    for name in list_segments(folder):
        try:
            found.append((name, read_header(folder, name)))
        except UnreadableError as error:
            if _is_gone(error):
                continue
            if isinstance(error.__cause__, OSError):
                raise
            damage = damage or error
    return found, damage


def _is_gone(error: UnreadableError) -> bool:
    return isinstance(error.__cause__, FileNotFoundError)


def _block_of(folder: Folder, name: str, header: SegmentHeader, from_seq: int, max_records: int) -> RecordBlock:
    """The records of one segment from ``from_seq`` on."""
    first = max(from_seq, header.first_seq)
    room = max_records + layout.MAX_MARK_RECORDS
    committed = read_records(folder, name, header, from_seq=first, max_records=room)
    records = whole_marks(committed, max_records)
    if header.sealed and not len(records):
        # The writer died inside a mark. Later records must not wait for its texts.
        records = committed
    return RecordBlock(
        first_seq=first,
        records=records,
        anchor=Anchor(monotonic_ns=header.anchor_monotonic_ns, wall_ns=header.anchor_wall_ns),
        lost=first - from_seq,
    )


def _nothing(from_seq: int) -> RecordBlock:
    return RecordBlock(
        first_seq=from_seq, records=np.zeros(0, layout.RECORD), anchor=Anchor(monotonic_ns=0, wall_ns=0), lost=0
    )
