"""Decides which ranks this collector may write, if several collectors share one database.

    claim   write a ballot above all others  ->  settle  ->  (marks are read)
    insert  register with the engine  ->  check: no larger ballot exists  ->  send the rows

The claiming collector waits for every insert that was registered before its ballot. Every insert that registers later
sees the ballot and stores nothing. So marks (the highest stored record numbers) that were read after a claim stay valid
until a check fails, even if a collector is killed, paused or disconnected in between. See
``docs/adr/0014-ranks-are-claimed.md``.

Which folder holds the name of a rank, so that its rows are accepted:

    announced (row of `ranks`)    rows name a folder                rows name no folder
    not at all                    announce first                    records: stored apart, under folder 0
    folder A                      A: stored    B: announce first    refused: the name is taken
    folder A, then folder B       taken, if records of A are stored; else B takes the place of A

A folder is identified by the time at which it was first opened. Records are numbered from 0 in every new folder. So the
numbers of one folder say nothing about another (``stored_numbers.py``).
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from telemetry.collector.stored_numbers import MAX_NAMED_RANKS, Rank, StoredNumbers
from telemetry.errors import RankscopeError, TakenNameError, UnannouncedError
from telemetry.run_names import Attempt
from telemetry.stores.interface import Reader, Store
from telemetry.stores.queries.claims import NUMBER_BITS, NewestClaims, RankOpenings
from telemetry.tables import NO_FOLDER
from telemetry.wire.codec import Batch

TAKEN_HINT = "give each run a unique name"


MAX_ATTEMPTS = 256
"""Attempts whose claims are cached. Ranks of the least recently used attempt are claimed again."""
_NUMBER = 2**NUMBER_BITS - 1


class LostClaimError(Exception):
    """Another collector has claimed ``ranks``: their cached marks are not valid."""

    def __init__(self, ranks: set[Rank]) -> None:
        super().__init__(f"{len(ranks)} ranks, {min(ranks)} the first")
        self.ranks = ranks


class Claims:
    """The ranks that this collector holds. For one thread.

    Raises:
        UnreachableError: from every method but :meth:`drop`, if the store does not answer.
    """

    def __init__(self, store: Store, reader: Reader) -> None:
        self._store = store
        self._reader = reader
        self._number = 1 + secrets.randbelow(_NUMBER)
        self._held: OrderedDict[Attempt, set[int]] = OrderedDict()

    def take(self, ranks: set[Rank]) -> None:
        """Claim those of ``ranks`` that are not held. Marks that were read before are not valid for these."""
        for used in {rank[:2] for rank in ranks if rank[:2] in self._held}:
            self._held.move_to_end(used)
        new = {rank for rank in ranks if rank[2] not in self._held.get(rank[:2], ())}
        if not new:
            return
        newest = self._newest(new)
        run_ids, attempts, ranks_of_new = zip(*new, strict=True)
        ballots = [((newest.get(rank, 0) >> NUMBER_BITS) + 1) << NUMBER_BITS | self._number for rank in new]
        rows = {
            "rank": np.array(ranks_of_new, np.uint32),
            "ballot": np.array(ballots, np.uint64),
            "run_id": pa.array(run_ids, pa.string()),
            "attempt": np.array(attempts, np.uint32),
        }
        self._store.insert("claims", pa.table(rows))
        self._store.settle()
        # A larger ballot that arrived meanwhile is noticed before the first row is sent.
        for run_id, attempt, rank in new:
            self._held.setdefault((run_id, attempt), set()).add(rank)

    def check(self, ranks: set[Rank]) -> None:
        """Return if this collector still holds the claims on all ``ranks``.

        Raises:
            LostClaimError: it has lost the claim on some of them.
        """
        if lost := set(self._newest(ranks, not_by=self._number)):
            raise LostClaimError(lost)

    def drop(self, ranks: Iterable[Rank]) -> None:
        """Forget the claims on ``ranks``, because another collector has them. :meth:`take` claims them again."""
        for run_id, attempt, rank in ranks:
            self._held.get((run_id, attempt), set()).discard(rank)

    def prune(self) -> list[Attempt]:
        """Drop the least recently used attempts beyond ``MAX_ATTEMPTS``. Returns them."""
        return [self._held.popitem(last=False)[0] for _ in range(len(self._held) - MAX_ATTEMPTS)]

    def _newest(self, ranks: set[Rank], **not_by: int) -> dict[Rank, int]:
        """The largest ballot of each of ``ranks``; unclaimed ranks are left out."""
        numbers = {rank for _, _, rank in ranks}
        query = NewestClaims(
            run_ids=tuple({run_id for run_id, _, _ in ranks}),
            attempts=tuple({attempt for _, attempt, _ in ranks}),
            ranks=tuple(numbers) if len(numbers) <= MAX_NAMED_RANKS else (),
            **not_by,
        )
        answer = self._reader.read(query)
        columns = (answer[name].to_pylist() for name in ("run_id", "attempt", "rank", "newest"))
        return {rank: newest for *key, newest in zip(*columns, strict=True) if (rank := tuple(key)) in ranks}


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
        # The announcement with the latest start is valid, so a replacement must be later.
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
        """Why the rows of ``batch`` must not be stored; None if they may. For all tables except ``ranks``. ``claimed``:
        this collector holds the ranks, so their cached state stays valid."""
        ranks = np.unique(batch.rows["rank"].to_numpy()).tolist()
        known = self._of(batch, ranks, keep=claimed)
        for rank in ranks:
            if reason := _refusal(batch, rank, known[rank]):
                return reason
        return None

    def forget(self, ranks: set[Rank]) -> None:
        """Forget the openings of ``ranks``, because another collector may have announced them. They are read again."""
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
        return _taken(batch, rank, "recorded from another folder, and these rows name no folder")
    return _unannounced(batch, rank)


def _taken(batch: Batch, rank: int, why: str) -> TakenNameError:
    return TakenNameError(f"run {batch.run_id!r}, attempt {batch.attempt}: rank {rank} is {why}", hint=TAKEN_HINT)


def _unannounced(batch: Batch, rank: int) -> UnannouncedError:
    return UnannouncedError(
        f"run {batch.run_id!r}, attempt {batch.attempt}: the table `ranks` has no row for this folder of rank {rank}",
        hint="send the row for `ranks` first. If an agent sent this: use the same version for agent and collector",
    )
