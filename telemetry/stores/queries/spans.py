"""Single spans: for a timeline, and as the columns that detectors compare."""

from dataclasses import dataclass

from telemetry.stores.interface import Fields, among
from telemetry.stores.queries.windows import IN_WINDOW
from telemetry.tables import SPANS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(Fields):
    """Spans of a window of steps, ordered by rank, start_ns, seq. Columns: those of ``telemetry.tables.SPANS``."""

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    ranks: tuple[int, ...] = ()
    """Empty: all."""
    stages: tuple[int, ...] = ()
    """Codes; empty: all."""
    limit: int = 1_000_000
    longest: int = 0
    """Of each rank and stream at most so many, the longest: ``Lanes`` tells how many there are. 0: all."""

    def sql(self) -> str:
        names = ", ".join(SPANS.names)
        chosen = f"{IN_WINDOW}{among('rank', 'ranks', self.ranks)}{among('stage', 'stages', self.stages)}"
        rows = f"""(
            SELECT {names} FROM spans WHERE {chosen}
            ORDER BY rank, stream, duration_ns DESC, seq LIMIT %(longest)s BY rank, stream
        )"""
        return f"""
        SELECT {names} FROM {rows if self.longest else f"spans WHERE {chosen}"}
        ORDER BY rank, start_ns, seq LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes(Fields):
    """How full the lanes of a timeline are: what is left out where only the longest spans are shown.

    Columns: rank, stream, spans (count), busy_ns (sum of durations); ordered by rank, stream.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    ranks: tuple[int, ...] = ()
    """Empty: all."""

    def sql(self) -> str:
        return f"""
        SELECT rank, stream, toUInt32(count()) AS spans, sum(duration_ns) AS busy_ns
        FROM spans WHERE {IN_WINDOW}{among("rank", "ranks", self.ranks)}
        GROUP BY rank, stream ORDER BY rank, stream
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationColumns(Fields):
    """Every operation of some stages over a window of steps, in the order of the table: cheap at any size.

    Columns: stage, step, rank, chunk, microbatch, peer, start_ns, duration_ns, cpu_ns; ordered by stage, step, rank,
    start_ns, seq.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()
    """Codes; empty: all."""

    def sql(self) -> str:
        return f"""
        SELECT stage, step, rank, chunk, microbatch, peer, start_ns, duration_ns, cpu_ns
        FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
        ORDER BY stage, step, rank, start_ns, seq
        """
