"""One name, one job: the folder whose rows a collector accepts under the name of a rank.

    announced (row of `ranks`)    rows name a folder                rows name no folder
    not at all                    announce first                    records: stored apart, under folder 0
    folder A                      A: stored    B: announce first    refused: the name is taken
    folder A, then folder B       taken, if records of A are stored; else B takes the place of A

A folder is identified by the time at which it was first opened. Records are numbered from 0 in every new folder. So the
numbers of one folder say nothing about another (``stored_numbers.py``).
"""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from telemetry.collector.claims import MAX_NAMED_RANKS, Attempt, Rank
from telemetry.collector.stored_numbers import StoredNumbers
from telemetry.errors import RankscopeError, TakenNameError, UnannouncedError
from telemetry.stores.interface import Reader
from telemetry.stores.queries.claims import RankOpenings
from telemetry.tables import NO_FOLDER
from telemetry.wire.codec import Batch

TAKEN_HINT = "give each run a unique name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The newest announcement of a rank."""

    opened_ns: int
    started_ns: int


@dataclass(slots=True)
class Openings:
    """Announced folders by attempt and rank. For one thread.

    Raises:
        UnreachableError: from :meth:`announce` and :meth:`refusal`, if the store does not answer.
    """

    reader: Reader
    numbers: StoredNumbers
    _known: dict[Attempt, dict[int, Opening | None]] = field(default_factory=dict)

    def announce(self, batch: Batch) -> pa.Table:
        """The rows of ``ranks`` to store for ``batch``. They count as stored until :meth:`forget`.

        Raises:
            TakenNameError: records of a rank are stored already, from another folder.
        """
        names = ("rank", "opened_ns", "started_ns")
        rows = list(zip(*(batch.rows[name].to_pylist() for name in names), strict=True))
        known = self._of(batch, sorted({rank for rank, _, _ in rows}), keep=True)
        changed = {
            rank: before
            for rank, opened_ns, _ in rows
            if (before := known[rank]) is not None and before.opened_ns != opened_ns
        }
        folders = {rank: before.opened_ns for rank, before in changed.items() if before.opened_ns != NO_FOLDER}
        if taken := self.numbers.with_records(batch, folders):
            raise _taken(batch, min(taken), "already stored, from another folder")
        # The announcement that started last counts, so a replacement must be later.
        started = [
            max(started_ns, changed[rank].started_ns + 1) if rank in changed else started_ns
            for rank, _, started_ns in rows
        ]
        self._known[batch.run_id, batch.attempt].update(
            (rank, Opening(opened_ns=opened_ns, started_ns=started_ns))
            for (rank, opened_ns, _), started_ns in zip(rows, started, strict=True)
        )
        column = batch.rows.column_names.index("started_ns")
        return batch.rows.set_column(column, batch.rows.schema.field(column), pa.array(started, pa.int64()))

    def refusal(self, batch: Batch, *, claimed: bool) -> RankscopeError | None:
        """Why the rows of ``batch``, of any other table, must not be stored; None if they may. ``claimed``: this
        collector holds the ranks, so their cached state stays valid."""
        ranks = np.unique(batch.rows["rank"].to_numpy()).tolist()
        known = self._of(batch, ranks, keep=claimed)
        for rank in ranks:
            if reason := _refusal(batch, rank, known[rank]):
                return reason
        return None

    def forget(self, ranks: set[Rank]) -> None:
        """Another collector may have announced them: read it again."""
        for run_id, attempt, rank in ranks:
            self._known.get((run_id, attempt), {}).pop(rank, None)

    def forget_attempt(self, attempt: Attempt) -> None:
        self._known.pop(attempt, None)

    def _of(self, batch: Batch, ranks: list[int], *, keep: bool) -> dict[int, Opening | None]:
        """The openings of ``ranks``; None for a rank that is not announced."""
        kept = self._known.get((batch.run_id, batch.attempt), {})
        known = {rank: kept[rank] for rank in ranks if rank in kept}
        if missing := [rank for rank in ranks if rank not in known]:
            named = tuple(missing) if len(missing) <= MAX_NAMED_RANKS else ()
            query = RankOpenings(run_id=batch.run_id, attempt=batch.attempt, ranks=named)
            found = {
                row["rank"]: Opening(opened_ns=row["newest_opened_ns"], started_ns=row["newest_started_ns"])
                for row in self.reader.read(query).to_pylist()
            }
            known.update((rank, found.get(rank)) for rank in missing)
        if keep:
            self._known.setdefault((batch.run_id, batch.attempt), {}).update(known)
        return known


def _refusal(batch: Batch, rank: int, known: Opening | None) -> RankscopeError | None:
    folder = batch.openings.get(rank, NO_FOLDER)
    if known is None:
        return None if folder == NO_FOLDER and "seq" in batch.rows.column_names else _unannounced(batch, rank)
    if known.opened_ns == folder:
        return None
    if folder == NO_FOLDER:
        return _taken(batch, rank, "recorded from a folder that these rows do not name")
    return _unannounced(batch, rank)


def _taken(batch: Batch, rank: int, why: str) -> TakenNameError:
    return TakenNameError(f"run {batch.run_id!r}, attempt {batch.attempt}: rank {rank} is {why}", hint=TAKEN_HINT)


def _unannounced(batch: Batch, rank: int) -> UnannouncedError:
    return UnannouncedError(
        f"run {batch.run_id!r}, attempt {batch.attempt}: rank {rank} is not announced from this folder",
        hint="send its row of `ranks` first; use the same version of agent and collector",
    )
