"""What a list of runs shows of each of its attempts: one question for many runs.

Beside ``Runs``. All are ordered by run_id, attempt; an attempt of which nothing is known has no row.
"""

from dataclasses import dataclass

from telemetry.stores.queries.windows import SEEN, STEP_STAGE, WINDOW, num_bits
from telemetry.stores.question import Fields
from telemetry.tables import ENDED_FAILED, ENDED_WELL

_BY_ATTEMPT = "GROUP BY run_id, attempt ORDER BY run_id, attempt"


def _of(run_ids: tuple[str, ...]) -> str:
    assert run_ids, "name one run at least"
    return "run_id IN %(run_ids)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGrids(Fields):
    """The grid of each attempt. Columns: run_id, attempt, dp, pp, tp."""

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, max(dp_size) AS dp, max(pp_size) AS pp, max(tp_size) AS tp
        FROM ranks WHERE {_of(self.run_ids)} {_BY_ATTEMPT}
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBeats(Fields):
    """What the ranks of each attempt last said of themselves.

    Columns: run_id, attempt, heard_ns, num_ranks (that were heard of), num_ended (in good order), num_gone (over an
    error, or without an end).
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
    """When evidence of a stall was last taken that nobody took back. Columns: run_id, attempt, newest_ns."""

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
class RunSteps(Fields):
    """The steps of each attempt, from windows of 50 steps.

    Columns: run_id, attempt, first_step, last_step, num_steps, steps_ns (all of them together, each as the mean over
    ranks), recent_ns (the mean step of the newest window), last_end_ns.
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, min(first) AS first_step, max(last) AS last_step,
            toUInt64(sum(steps_seen)) AS num_steps, sum(total_ns * steps_seen / num) AS steps_ns,
            argMax(total_ns / num, number) AS recent_ns, max(ends_ns) AS last_end_ns
        FROM (
            SELECT run_id, attempt, {WINDOW} AS number, {num_bits(SEEN)} AS steps_seen, count() AS num,
                sum(duration_ns) AS total_ns, min(step) AS first, max(step) AS last,
                max(start_ns + duration_ns) AS ends_ns
            FROM spans WHERE stage = {STEP_STAGE} AND {_of(self.run_ids)} GROUP BY run_id, attempt, {WINDOW}
        )
        {_BY_ATTEMPT}
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics(Fields):
    """A metric's mean over the newest window of 50 steps that has it. Columns: run_id, attempt, mean."""

    run_ids: tuple[str, ...]
    metric: str

    def sql(self) -> str:
        return f"""
        SELECT run_id, attempt, argMax(mean_of_window, number) AS mean
        FROM (
            SELECT run_id, attempt, {WINDOW} AS number, avg(value) AS mean_of_window
            FROM samples WHERE metric = %(metric)s AND {_of(self.run_ids)} GROUP BY run_id, attempt, {WINDOW}
        )
        {_BY_ATTEMPT}
        """
