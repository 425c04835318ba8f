"""Queries about runs and their ranks, and for each column in the list of runs.

Lists are ordered by run_id, attempt. An attempt without data has no row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import LAST_STEP, SEEN, STEP_STAGE, WINDOW, num_bits
from telemetry.tables import ENDED_FAILED, ENDED_WELL

_BY_ATTEMPT = "GROUP BY run_id, attempt ORDER BY run_id, attempt"


def _of(run_ids: tuple[str, ...]) -> str:
    assert run_ids, "at least one run is needed"
    return "run_id IN %(run_ids)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGrids(Fields):
    """The grid that most ranks of an attempt have. If several are equally frequent, the grid of the lowest rank, as in
    ``telemetry/records.py``.

    Columns: run_id, attempt, dp_size, pp_size, tp_size, mesh (empty: plain).
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, newest.1 AS dp_size, newest.2 AS pp_size, newest.3 AS tp_size,
            newest.4 AS mesh
        FROM (
            SELECT run_id, attempt, argMax(grid, (num, -lowest)) AS newest
            FROM (
                SELECT run_id, attempt, grid, toInt64(count()) AS num, toInt64(min(rank)) AS lowest
                FROM (
                    SELECT run_id, attempt, rank, argMax((dp_size, pp_size, tp_size, mesh), started_ns) AS grid
                    FROM ranks WHERE {_of(self.run_ids)} GROUP BY run_id, attempt, rank
                )
                GROUP BY run_id, attempt, grid
            )
            GROUP BY run_id, attempt
        )
        ORDER BY run_id, attempt
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBeats(Fields):
    """The newest heartbeats of each attempt.

    Columns: run_id, attempt, heard_ns (time of the newest), num_ranks (with a heartbeat), num_ended (normally),
    num_gone (ended with an error, or the process disappeared).
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, max(newest) AS heard_ns, toUInt32(count()) AS num_ranks,
            toUInt32(sum(how = {ENDED_WELL})) AS num_ended,
            toUInt32(sum(how = {ENDED_FAILED} OR (how = 0 AND lives = 0))) AS num_gone
        FROM (
            SELECT run_id, attempt, rank, max(at_ns) AS newest, argMax(ended, at_ns) AS how,
                argMax(alive, at_ns) AS lives
            FROM heartbeats WHERE {_of(self.run_ids)} GROUP BY run_id, attempt, rank
        )
        {_BY_ATTEMPT}
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStalls(Fields):
    """Time of the newest evidence of a stall that was not withdrawn. Columns: run_id, attempt, newest_ns."""

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, max(newest) AS newest_ns
        FROM (
            SELECT run_id, attempt, rank, kind, max(at_ns) AS newest, argMax(notEmpty(body), at_ns) AS stands
            FROM evidence WHERE {_of(self.run_ids)} GROUP BY run_id, attempt, rank, kind
        )
        WHERE stands = 1 {_BY_ATTEMPT}
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWallTimes(Fields):
    """Duration of runs. It is measured separately on each host, so differences between the clocks have no effect.

    The time of a host lasts from the first to the last record of its ranks in all attempts: starts, steps, heartbeats
    (only the newest). A rank with an unknown host counts as a host.

    Columns: run_id, first_attempt, last_attempt, wall_ns (the longest time of all hosts with this first and last
    attempt); ordered by run_id, first_attempt, last_attempt.
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        of_rank = f"{_of(self.run_ids)} GROUP BY run_id, attempt, rank"
        return f"""
        SELECT run_id, first_attempt, last_attempt, max(ends - starts) AS wall_ns
        FROM (
            SELECT run_id, place, min(attempt) AS first_attempt, max(attempt) AS last_attempt, min(first_ns) AS starts,
                max(last_ns) AS ends
            FROM (
                SELECT run_id, attempt, rank, min(rank_first_ns) AS first_ns, max(rank_last_ns) AS last_ns,
                    if(max(name) = '', concat('rank ', toString(rank)), max(name)) AS place
                FROM (
                    SELECT run_id, attempt, rank, argMax(host, started_ns) AS name, max(started_ns) AS rank_first_ns,
                        max(started_ns) AS rank_last_ns
                    FROM ranks WHERE {of_rank}
                    UNION ALL
                    SELECT run_id, attempt, rank, '' AS name, min(start_ns) AS rank_first_ns,
                        max(start_ns + duration_ns) AS rank_last_ns
                    FROM spans WHERE stage = {STEP_STAGE} AND {of_rank}
                    UNION ALL
                    SELECT run_id, attempt, rank, '' AS name, max(at_ns) AS rank_first_ns, max(at_ns) AS rank_last_ns
                    FROM heartbeats WHERE {of_rank}
                )
                GROUP BY run_id, attempt, rank
            )
            GROUP BY run_id, place
        )
        GROUP BY run_id, first_attempt, last_attempt ORDER BY run_id, first_attempt, last_attempt
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSteps(Fields):
    """The steps of each attempt, from windows of 50 steps.

    Step times are defined in ``diagnose/model/operations.py``. They need only sums and counts of spans.

    Columns: run_id, attempt, first_step, last_step, num_steps, steps_ns (total time: the sum over windows of step time
    x number of steps), recent_ns (the step time in the newest window), recent_first (first step of that window),
    last_end_ns.
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, min(first) AS first_step, max(last) AS last_step,
            toUInt64(sum(steps_seen)) AS num_steps, sum(total_ns * steps_seen / num) AS steps_ns,
            argMax(total_ns / num, number) AS recent_ns, argMax(first, number) AS recent_first,
            max(ends_ns) AS last_end_ns
        FROM (
            SELECT run_id, attempt, {WINDOW} AS number, {num_bits(SEEN)} AS steps_seen, count() AS num,
                sum(duration_ns) AS total_ns, min(step) AS first, max(step) AS last,
                max(start_ns + duration_ns) AS ends_ns
            FROM spans WHERE stage = {STEP_STAGE} AND {_of(self.run_ids)} GROUP BY run_id, attempt, {WINDOW}
        )
        {_BY_ATTEMPT}
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRates(Fields):
    """Mean of a rate over the newest window of 50 steps that has it: the harmonic mean, as all steps do equal work.

    So it equals the work of these steps divided by their time, and matches the mean step time.

    Columns: run_id, attempt, mean, first_step, last_step (steps of that window with a value).
    """

    run_ids: tuple[str, ...]
    metric: str

    def sql(self) -> str:
        wanted = f"metric = %(metric)s AND {_of(self.run_ids)}"
        newest = f"SELECT run_id, attempt, max({WINDOW}) FROM samples WHERE {wanted} GROUP BY run_id, attempt"
        return f"""
        SELECT run_id, attempt, count() / sum(1 / value) AS mean, min(step) AS first_step, max(step) AS last_step
        FROM samples WHERE {wanted} AND (run_id, attempt, {WINDOW}) GLOBAL IN ({newest})
        {_BY_ATTEMPT}
        """


NAME_BYTES = 50_000
"""Largest size of all names of runs in one query. A query repeats them up to three times, and servers limit its text to
256 KiB."""
_QUOTES = 4
"""Characters around a name in a list."""


def in_portions(run_ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """``run_ids`` in portions that are small enough for one query. There are few: a query takes some milliseconds
    even if it is about few runs."""
    some: list[str] = []
    num_bytes = 0
    for run_id in run_ids:
        size = len(run_id.encode(errors="replace")) + _QUOTES
        if some and num_bytes + size > NAME_BYTES:
            yield tuple(some)
            some, num_bytes = [], 0
        some.append(run_id)
        num_bytes += size
    if some:
        yield tuple(some)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Fields):
    """All runs, or the given runs, newest first. Only the newest row of each rank is used: merges drop other rows.

    Without ``run_ids``, the roll-ups of the steps of all runs are read. ``StoredRuns`` reads no steps, so it is faster
    where the steps are not needed.

    Columns: run_id, attempt, started_ns, last_ns, num_ranks, first_step, last_step, meta.
    """

    run_ids: tuple[str, ...] = ()

    def sql(self) -> str:
        named = among("run_id", "run_ids", self.run_ids)
        return f"""
        SELECT run_id, attempt, min(starts) AS started_ns, max(ends) AS last_ns, max(ranks_seen) AS num_ranks,
            if(min(first) = {LAST_STEP}, toUInt32(0), min(first)) AS first_step, max(last) AS last_step,
            max(rank_meta) AS meta
        FROM (
            {_attempts(named)}
            UNION ALL
            SELECT run_id, attempt, min(start_ns) AS starts, max(start_ns + duration_ns) AS ends,
                toUInt32(0) AS ranks_seen, min(step) AS first, max(step) AS last, '' AS rank_meta
            FROM spans WHERE stage = {STEP_STAGE}{named} GROUP BY run_id, attempt
        )
        GROUP BY run_id, attempt
        ORDER BY started_ns DESC, run_id, attempt DESC
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns(Fields):
    """All attempts with at least one announced rank, newest first.

    No spans are read, so the time does not depend on their number.

    Columns: run_id, attempt, started_ns, last_ns (newest start or heartbeat of a rank), num_ranks.
    """

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, min(starts) AS started_ns, max(ends) AS last_ns, max(ranks_seen) AS num_ranks
        FROM ({_attempts("")})
        GROUP BY run_id, attempt HAVING num_ranks > 0
        ORDER BY started_ns DESC, run_id, attempt DESC
        """


def _attempts(named: str) -> str:
    """Attempts from the tables with one row for each rank. ``named``: a further condition."""
    no_step = f"toUInt32({LAST_STEP}) AS first, toUInt32(0) AS last"
    return f"""
            SELECT run_id, attempt, min(opened) AS starts, max(started) AS ends,
                toUInt32(count()) AS ranks_seen, {no_step}, argMin(newest_meta, rank) AS rank_meta
            FROM (
                SELECT run_id, attempt, rank, argMax(if(opened_ns > 0, opened_ns, started_ns), started_ns) AS opened,
                    max(started_ns) AS started, argMax(meta, started_ns) AS newest_meta
                FROM ranks WHERE 1{named} GROUP BY run_id, attempt, rank
            )
            GROUP BY run_id, attempt
            UNION ALL
            SELECT run_id, attempt, min(beat) AS starts, max(beat) AS ends, toUInt32(0) AS ranks_seen, {no_step},
                '' AS rank_meta
            FROM (
                SELECT run_id, attempt, rank, argMax(beat_ns, at_ns) AS beat
                FROM heartbeats WHERE beat_ns > 0{named} GROUP BY run_id, attempt, rank
            )
            GROUP BY run_id, attempt"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks(Fields):
    """The ranks of an attempt.

    Columns: rank, host, local_rank, pid, dp_size, pp_size, tp_size, mesh (empty: plain), started_ns, opened_ns, meta;
    ordered by rank. ``telemetry.records`` reads the grid.
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
