"""Which runs are stored, and who their ranks are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import LAST_STEP, STEP_STAGE

MOST_NAMED = 250
"""Runs that one query may name."""


def in_portions(run_ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """``run_ids`` in parts that a query may name."""
    for first in range(0, len(run_ids), MOST_NAMED):
        yield tuple(run_ids[first : first + MOST_NAMED])


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Fields):
    """All runs, or those named, newest first. Of the rows about a rank only the newest counts: merges drop the others.

    Without names every step of every run is read. ``StoredRuns`` lists all runs without that.

    Columns: run_id, attempt, started_ns, last_ns, num_ranks, first_step, last_step, meta.
    """

    run_ids: tuple[str, ...] = ()

    def sql(self) -> str:
        named = among("run_id", "run_ids", self.run_ids)
        return f"""
        SELECT run_id, attempt, min(starts) AS started_ns, max(ends) AS last_ns, max(ranks_seen) AS num_ranks,
            if(min(first) = {LAST_STEP}, toUInt32(0), min(first)) AS first_step, max(last) AS last_step,
            max(words) AS meta
        FROM (
            {_told_by_ranks(named)}
            UNION ALL
            SELECT run_id, attempt, min(start_ns) AS starts, max(start_ns + duration_ns) AS ends,
                toUInt32(0) AS ranks_seen, min(step) AS first, max(step) AS last, '' AS words
            FROM spans WHERE stage = {STEP_STAGE}{named} GROUP BY run_id, attempt
        )
        GROUP BY run_id, attempt
        ORDER BY started_ns DESC, run_id, attempt DESC
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns(Fields):
    """Every attempt of which a rank is known, newest first.

    No span is read: the answer takes as long for a billion spans as for a few.

    Columns: run_id, attempt, started_ns, last_ns (when a rank last started or beat), num_ranks.
    """

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, min(starts) AS started_ns, max(ends) AS last_ns, max(ranks_seen) AS num_ranks
        FROM ({_told_by_ranks("")})
        GROUP BY run_id, attempt HAVING num_ranks > 0
        ORDER BY started_ns DESC, run_id, attempt DESC
        """


def _told_by_ranks(named: str) -> str:
    """What the tables that hold a row for each rank say of attempts. ``named``: a further condition."""
    no_step = f"toUInt32({LAST_STEP}) AS first, toUInt32(0) AS last"
    return f"""
            SELECT run_id, attempt, min(opened) AS starts, max(started) AS ends,
                toUInt32(count()) AS ranks_seen, {no_step}, argMin(newest_meta, rank) AS words
            FROM (
                SELECT run_id, attempt, rank, argMax(if(opened_ns > 0, opened_ns, started_ns), started_ns) AS opened,
                    max(started_ns) AS started, argMax(meta, started_ns) AS newest_meta
                FROM ranks WHERE 1{named} GROUP BY run_id, attempt, rank
            )
            GROUP BY run_id, attempt
            UNION ALL
            SELECT run_id, attempt, min(beat) AS starts, max(beat) AS ends, toUInt32(0) AS ranks_seen, {no_step},
                '' AS words
            FROM (
                SELECT run_id, attempt, rank, argMax(beat_ns, at_ns) AS beat
                FROM heartbeats WHERE beat_ns > 0{named} GROUP BY run_id, attempt, rank
            )
            GROUP BY run_id, attempt"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks(Fields):
    """The ranks of an attempt.

    Columns: rank, host, local_rank, pid, dp_size, pp_size, tp_size, mesh (empty: plain), started_ns, opened_ns, meta;
    ordered by rank. ``telemetry.stored_topology`` reads the grid.
    """

    run_id: str
    attempt: int

    def sql(self) -> str:
        names = ("host", "local_rank", "pid", "dp_size", "pp_size", "tp_size", "mesh", "opened_ns", "meta")
        newest = ", ".join(f"argMax({name}, started_ns) AS newest_{name}" for name in names)
        answer = ", ".join(f"newest_{name} AS {name}" for name in names[:-1])
        return f"""
        SELECT rank, {answer}, newest AS started_ns, newest_meta AS meta
        FROM (SELECT rank, {newest}, max(started_ns) AS newest FROM ranks WHERE {OF_ATTEMPT} GROUP BY rank)
        ORDER BY rank
        """
