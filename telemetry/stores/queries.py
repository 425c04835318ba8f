"""Every question rankscope asks a store: typed, parameterised, answered as columns.

A query is a frozen dataclass: its fields are the parameters, its docstring names the columns of the answer.
SQL keeps to what ClickHouse 18.16 and today's engine both know: no window functions, no ``WITH``, no Map.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.stores.host_queries import HostEvents, HostSamples
from telemetry.stores.question import OF_ATTEMPT, Fields, Query, among
from telemetry.tables import HEARTBEATS, SPANS

LAST_STEP = 2**32 - 1
"""The largest step there can be."""

_IN_WINDOW = f"{OF_ATTEMPT} AND step >= %(first_step)s AND step <= %(last_step)s"
_STEP_STAGE = 1

NumberedTable = Literal["spans", "marks", "samples"]
"""Tables whose rows carry ``seq``: stored exactly once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Fields):
    """All runs, newest first.

    Columns: run_id, attempt, started_ns, last_ns, num_ranks, first_step, last_step, meta.
    """

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, min(starts) AS started_ns, max(ends) AS last_ns, max(ranks_seen) AS num_ranks,
            if(min(first) = {LAST_STEP}, toUInt32(0), min(first)) AS first_step, max(last) AS last_step,
            max(words) AS meta
        FROM (
            SELECT run_id, attempt, min(started_ns) AS starts, max(started_ns) AS ends,
                toUInt32(uniqExact(rank)) AS ranks_seen, toUInt32({LAST_STEP}) AS first, toUInt32(0) AS last,
                argMin(meta, rank) AS words
            FROM ranks GROUP BY run_id, attempt
            UNION ALL
            SELECT run_id, attempt, min(start_ns) AS starts, max(start_ns + duration_ns) AS ends,
                toUInt32(0) AS ranks_seen, min(step) AS first, max(step) AS last, '' AS words
            FROM spans WHERE stage = {_STEP_STAGE} GROUP BY run_id, attempt
            UNION ALL
            SELECT run_id, attempt, min(beat_ns) AS starts, max(beat_ns) AS ends,
                toUInt32(0) AS ranks_seen, toUInt32({LAST_STEP}) AS first, toUInt32(0) AS last, '' AS words
            FROM heartbeats WHERE beat_ns > 0 GROUP BY run_id, attempt
        )
        GROUP BY run_id, attempt
        ORDER BY started_ns DESC, run_id, attempt DESC
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks(Fields):
    """The ranks of an attempt.

    Columns: rank, host, local_rank, pid, dp_size, pp_size, tp_size, started_ns, opened_ns, meta; ordered by rank.
    """

    run_id: str
    attempt: int

    def sql(self) -> str:
        names = ("host", "local_rank", "pid", "dp_size", "pp_size", "tp_size", "opened_ns", "meta")
        newest = ", ".join(f"argMax({name}, started_ns) AS newest_{name}" for name in names)
        answer = ", ".join(f"newest_{name} AS {name}" for name in names[:-1])
        return f"""
        SELECT rank, {answer}, newest AS started_ns, newest_meta AS meta
        FROM (SELECT rank, {newest}, max(started_ns) AS newest FROM ranks WHERE {OF_ATTEMPT} GROUP BY rank)
        ORDER BY rank
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Fields):
    """Wall time of each step, from the ranks' ``step`` spans.

    Columns: step, start_ns (the first rank's), duration_ns (median over ranks), num_ranks; ordered by step.
    """

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        return f"""
        SELECT step, min(start_ns) AS start_ns, quantileExact(0.5)(duration_ns) AS duration_ns,
            toUInt32(uniqExact(rank)) AS num_ranks
        FROM spans WHERE {_IN_WINDOW} AND stage = {_STEP_STAGE}
        GROUP BY step ORDER BY step
        """


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

    def sql(self) -> str:
        return f"""
        SELECT {", ".join(SPANS.names)} FROM spans
        WHERE {_IN_WINDOW}{among("rank", "ranks", self.ranks)}{among("stage", "stages", self.stages)}
        ORDER BY rank, start_ns, seq LIMIT %(limit)s
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
        FROM spans WHERE {_IN_WINDOW}{among("stage", "stages", self.stages)}
        ORDER BY stage, step, rank, start_ns, seq
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals(Fields):
    """Time of each rank in each stage and step, chunk by chunk.

    Columns: step, rank, stage, chunk, spans (count), duration_ns, cpu_ns (sums; -1 where a span has none); ordered
    by step, rank, stage, chunk.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()

    def sql(self) -> str:
        return f"""
        SELECT step, rank, stage, chunk, toUInt32(num) AS spans, total_ns AS duration_ns,
            if(least_cpu < 0, toInt64(-1), total_cpu) AS cpu_ns
        FROM (
            SELECT step, rank, stage, chunk, count() AS num, sum(duration_ns) AS total_ns,
                min(cpu_ns) AS least_cpu, sum(cpu_ns) AS total_cpu
            FROM spans WHERE {_IN_WINDOW}{among("stage", "stages", self.stages)}
            GROUP BY step, rank, stage, chunk
        )
        ORDER BY step, rank, stage, chunk
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStageStats(Fields):
    """Each rank's time in each stage over a window of steps: the cells of the heat map.

    Columns: rank, stage, steps (in which the stage occurred), spans, median_ns, mean_ns (of the time in one step),
    median_cpu_ns (-1 where a span has none); ordered by rank, stage.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()

    def sql(self) -> str:
        return f"""
        SELECT rank, stage, toUInt32(count()) AS steps, toUInt64(sum(num)) AS spans,
            quantileExact(0.5)(total_ns) AS median_ns, avg(total_ns) AS mean_ns,
            if(min(least_cpu) < 0, toInt64(-1), quantileExact(0.5)(total_cpu)) AS median_cpu_ns
        FROM (
            SELECT rank, stage, step, count() AS num, sum(duration_ns) AS total_ns,
                min(cpu_ns) AS least_cpu, sum(cpu_ns) AS total_cpu
            FROM spans WHERE {_IN_WINDOW}{among("stage", "stages", self.stages)}
            GROUP BY rank, stage, step
        )
        GROUP BY rank, stage ORDER BY rank, stage
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCounts(Fields):
    """The stages that occur in an attempt. Columns: stage, ranks, spans, duration_ns (sum); ordered by stage."""

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        return f"""
        SELECT stage, toUInt32(uniqExact(rank)) AS ranks, count() AS spans, sum(duration_ns) AS duration_ns
        FROM spans WHERE {_IN_WINDOW} GROUP BY stage ORDER BY stage
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(Fields):
    """Values of metrics by step: of the ranks that report one, the highest's newest.

    Columns: step, at_ns, metric, value, rank; ordered by metric, step.
    """

    run_id: str
    attempt: int
    metrics: tuple[str, ...] = ()
    """Empty: all."""

    def sql(self) -> str:
        return f"""
        SELECT step, newest.1 AS at_ns, metric, newest.2 AS value, newest.3 AS rank
        FROM (
            SELECT step, metric, argMax((at_ns, value, rank), (rank, seq)) AS newest
            FROM samples WHERE {OF_ATTEMPT}{among("metric", "metrics", self.metrics)}
            GROUP BY step, metric
        )
        ORDER BY metric, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks(Fields):
    """The newest marks of an attempt, in time order. Columns: rank, step, at_ns, name, text."""

    run_id: str
    attempt: int
    limit: int = 10_000

    def sql(self) -> str:
        return f"""
        SELECT rank, step, at_ns, name, text
        FROM (SELECT * FROM marks WHERE {OF_ATTEMPT} ORDER BY at_ns DESC, rank, seq LIMIT %(limit)s)
        ORDER BY at_ns, rank, seq
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats(Fields):
    """Newest heartbeat of each rank, ordered by rank. Columns: those of ``telemetry.tables.HEARTBEATS``."""

    run_id: str
    attempt: int

    def sql(self) -> str:
        names = [name for name in HEARTBEATS.names if name not in ("rank", "at_ns")]
        newest = ", ".join(f"argMax({name}, at_ns) AS newest_{name}" for name in names)
        answer = ", ".join(f"newest_{name} AS {name}" for name in names)
        return f"""
        SELECT rank, newest AS at_ns, {answer}
        FROM (SELECT rank, max(at_ns) AS newest, {newest} FROM heartbeats WHERE {OF_ATTEMPT} GROUP BY rank)
        ORDER BY rank
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(Fields):
    """What was taken down of ranks that stood still or died: the newest of each rank and kind.

    Columns: rank, at_ns, kind, body (the texts are told in ``telemetry/agent/evidence.py``); ordered by rank, kind.
    """

    run_id: str
    attempt: int
    kinds: tuple[str, ...] = ()
    """Empty: all."""

    def sql(self) -> str:
        return f"""
        SELECT rank, newest AS at_ns, kind, text AS body
        FROM (
            SELECT rank, kind, max(at_ns) AS newest, argMax(body, at_ns) AS text
            FROM evidence WHERE {OF_ATTEMPT}{among("kind", "kinds", self.kinds)} GROUP BY rank, kind
        )
        WHERE text != '' ORDER BY rank, kind
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceCount(Fields):
    """How much was taken down, without the texts: enough to tell whether there is more than at the last look.

    Columns: num_rows, newest_ns; no row where nothing was.
    """

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"""
        SELECT count() AS num_rows, max(at_ns) AS newest_ns FROM evidence WHERE {OF_ATTEMPT}
        GROUP BY run_id, attempt
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWater(Fields):
    """How far each rank is stored: the ledger of exactly-once.

    Columns: rank, next_seq (one past the largest stored seq); ordered by rank.
    """

    table: NumberedTable
    run_id: str
    attempt: int

    def __post_init__(self) -> None:
        assert self.table in get_args(NumberedTable), self.table

    def sql(self) -> str:
        return f"""
        SELECT rank, max(seq) + 1 AS next_seq FROM {self.table} WHERE {OF_ATTEMPT} GROUP BY rank ORDER BY rank
        """


QUERIES: dict[str, type[Query]] = {
    query.__name__: query
    for query in (
        Runs, Ranks, Steps, Spans, OperationColumns, StageTotals, RankStageStats, StageCounts, Samples, Marks,
        Heartbeats, Evidence, EvidenceCount, HighWater, HostSamples, HostEvents,
    )
}  # fmt: skip
"""What may be asked over the wire: name -> query."""
