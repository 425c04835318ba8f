"""From a rank's records to rows: follows one rank file and speaks in the columns of ``telemetry.tables``."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from telemetry.errors import UnreadableError
from telemetry.record.reader import (
    MAX_RECORDS,
    RankReader,
    RecordBlock,
    decode_marks,
    decode_samples,
    decode_spans,
)
from telemetry.records import RankIdentity
from telemetry.tables import RANKS, TABLES

_DECODERS = {"spans": decode_spans, "marks": decode_marks, "samples": decode_samples}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of consecutive records of one rank."""

    num_records: int
    next_seq: int
    """One past the last record."""
    tables: dict[str, pa.Table]
    """Rows by table; tables without any are left out."""


class RankTail:
    """Follows one rank file. What was read counts as shipped only when :meth:`shipped` says so.

    Raises:
        UnreadableError: from every method, when the folder holds something else than a rank's files.
        OSError: likewise, when a file went away in between.
    """

    def __init__(self, folder: Path, *, from_seq: int | None = None) -> None:
        self.reader = RankReader(folder)
        self.identity = _identity_of(self.reader)
        self._next_seq = self.reader.acked() if from_seq is None else from_seq

    def read(self, max_records: int = MAX_RECORDS) -> Chunk | None:
        """The next committed records, about so many at most; None when there are none yet."""
        block = self.reader.read(self._next_seq, max_records)
        if not len(block.records):
            return None
        rows = block_rows(block, self.identity.rank)
        return Chunk(num_records=len(block.records), next_seq=block.next_seq, tables=rows)

    def passed(self, chunk: Chunk) -> None:
        """Read on after ``chunk``."""
        self._next_seq = chunk.next_seq

    def shipped(self, chunk: Chunk) -> None:
        """``chunk`` is stored: read on after it, and let go of segments that are no longer needed."""
        self.passed(chunk)
        # The number in the file is a hint: without it (a full disk) the same records are sent again and trimmed.
        with suppress(OSError):
            self.reader.acknowledge(max(chunk.next_seq, self.reader.acked()))
            self.reader.reclaim(chunk.next_seq)

    def refresh_identity(self) -> None:
        """Read again who writes: after a restart in place it is another process."""
        self.identity = _identity_of(self.reader)


def _identity_of(reader: RankReader) -> RankIdentity:
    """Who writes in a folder; its name must agree, or two folders would pass for one rank."""
    identity = reader.identity()
    attempt, rank = str(identity.attempt), f"rank-{identity.rank:05d}"
    if reader.folder.parts[-3:] != (identity.run_id, attempt, rank):
        raise UnreadableError(
            f"{reader.folder} holds {identity.run_id}/{attempt}/{rank}", hint="give the folder back its name"
        )
    return identity


def block_rows(block: RecordBlock, rank: int) -> dict[str, pa.Table]:
    """A block's rows by table, stamped with wall time."""
    tables = {name: _table(name, block, rank) for name in _DECODERS}
    return {name: rows for name, rows in tables.items() if rows.num_rows}


def rank_rows(identities: list[RankIdentity]) -> pa.Table:
    """Rows of the ``ranks`` table."""
    rows = [
        {
            "rank": one.rank,
            "host": one.host,
            "local_rank": one.local_rank,
            "pid": one.pid,
            "dp_size": one.topology.dp,
            "pp_size": one.topology.pp,
            "tp_size": one.topology.tp,
            "started_ns": one.started_ns,
            "opened_ns": one.opened_ns or one.started_ns,
            "meta": json.dumps(one.meta, sort_keys=True),
        }
        for one in identities
    ]
    return pa.Table.from_pylist(rows, schema=RANKS)


def _table(name: str, block: RecordBlock, rank: int) -> pa.Table:
    columns = _DECODERS[name](block.records, block.first_seq, block.anchor.to_wall_ns)
    columns["rank"] = np.full(len(columns["seq"]), rank, np.uint32)
    if "size_bytes" in columns:
        # Signed in the file: nonsense below zero must not become an enormous size.
        columns["size_bytes"] = np.maximum(columns["size_bytes"], 0).astype(np.uint64)
    arrays = [_array(columns[field.name], field.type) for field in TABLES[name]]
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values, kind)
