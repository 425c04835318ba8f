"""Which ranks this collector may write, if several collectors share one database.

    claim   write a ballot above all existing ones  ->  settle  ->  (marks are read)
    insert  register with the engine  ->  check: no larger ballot exists  ->  send the rows

The claiming collector waits for every insert that was registered before its ballot. Every insert that registers later
sees the ballot and stores nothing. So marks that were read after a claim stay true until a check fails, even if a
collector is killed, paused or disconnected in between. See ``docs/adr/0014-ranks-are-claimed.md``.
"""

import secrets
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from telemetry.stores.interface import Reader, Store
from telemetry.stores.queries.claims import NUMBER_BITS, NewestClaims

Rank = tuple[str, int, int]
"""Run, attempt, rank."""
Attempt = tuple[str, int]
"""Run, attempt."""

MAX_NAMED_RANKS = 4096
"""If there are more ranks, a query reads all ranks of the attempt."""
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
        """Return if all ``ranks`` are still this collector's.

        Raises:
            LostClaimError: some are not.
        """
        if lost := set(self._newest(ranks, not_by=self._number)):
            raise LostClaimError(lost)

    def drop(self, ranks: Iterable[Rank]) -> None:
        """Another collector has them: claim them again before the next row."""
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
