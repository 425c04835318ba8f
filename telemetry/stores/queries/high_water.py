"""How far ranks are stored: what makes a resent batch harmless."""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.stores.question import OF_ATTEMPT, Fields, among

NumberedTable = Literal["spans", "marks", "samples"]
"""Tables whose rows carry ``seq``: stored exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater(Fields):
    """How far each folder of each rank is stored: the ledger of exactly-once.

    Columns: rank, opened_ns (when the folder was first opened; 0: not named, -1: stored by an older version or without
    a collector), next_seq (one past the largest stored seq); ordered by rank, opened_ns.
    """

    table: NumberedTable
    run_id: str
    attempt: int
    ranks: tuple[int, ...] = ()
    """Empty: all."""

    def __post_init__(self) -> None:
        assert self.table in get_args(NumberedTable), self.table

    def sql(self) -> str:
        return f"""
        SELECT rank, opened_ns, max(seq) + 1 AS next_seq FROM {self.table}
        WHERE {OF_ATTEMPT}{among("rank", "ranks", self.ranks)} GROUP BY rank, opened_ns ORDER BY rank, opened_ns
        """
