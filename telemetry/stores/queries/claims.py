"""Queries about claims (``telemetry/collector/claims.py``), and about the stored records of each rank."""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.stores.interface import OF_ATTEMPT, Fields, among

NumberedTable = Literal["spans", "marks", "samples"]
"""Tables whose rows have a ``seq``. Each row is stored exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater(Fields):
    """The high-water mark of each folder of each rank. It ensures that each record is stored exactly once.

    Columns: rank, opened_ns (when the folder was first opened; 0: no folder, -1: stored by an older version or without
    a collector), next_seq (the largest stored seq plus 1); ordered by rank, opened_ns.
    """

    table: NumberedTable
    run_id: str
    attempt: int
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""

    def __post_init__(self) -> None:
        assert self.table in get_args(NumberedTable), self.table

    def sql(self) -> str:
        return f"""
        SELECT rank, opened_ns, max(seq) + 1 AS next_seq FROM {self.table}
        WHERE {OF_ATTEMPT}{among("rank", "ranks", self.ranks)} GROUP BY rank, opened_ns ORDER BY rank, opened_ns
        """


NUMBER_BITS = 40
"""Low bits of a ballot: the number of its collector. The higher bits: the round."""
NOBODY = 0
"""A number that no collector has, so no ballot is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestClaims(Fields):
    """The largest ballot of each rank, without ballots of collector ``not_by``.

    The answer has all pairs of the given runs and attempts, so it may have more rows than needed.

    Columns: run_id, attempt, rank, newest.
    """

    run_ids: tuple[str, ...]
    attempts: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""
    not_by: int = NOBODY

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, rank, max(ballot) AS newest FROM claims
        WHERE run_id IN %(run_ids)s AND attempt IN %(attempts)s{among("rank", "ranks", self.ranks)}
        GROUP BY run_id, attempt, rank
        HAVING bitAnd(newest, {2**NUMBER_BITS - 1}) != %(not_by)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOpenings(Fields):
    """When the newest folder of each announced rank of an attempt was created, and when the rank started.

    Columns: rank, newest_opened_ns (creation of the folder; 0: not known), newest_started_ns (start of the rank).
    """

    run_id: str
    attempt: int
    ranks: tuple[int, ...] = ()
    """If empty, all are returned."""

    def sql(self) -> str:
        return f"""
        SELECT rank, argMax(opened_ns, started_ns) AS newest_opened_ns, max(started_ns) AS newest_started_ns FROM ranks
        WHERE {OF_ATTEMPT}{among("rank", "ranks", self.ranks)} GROUP BY rank
        """
