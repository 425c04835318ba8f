"""Queries about many attempts at once, so that the number of queries does not grow with the number of attempts."""

from dataclasses import dataclass

from telemetry.stores.interface import Fields
from telemetry.stores.queries.windows import LAST_STEP, STEP_STAGE
from telemetry.tables import ENDED_FAILED

_EARLIER = "run_id = %(run_id)s AND attempt < %(before_attempt)s"
_LIMITS = f"""
            SELECT attempt, min(died) AS died_in, max(taken) AS taken_ns
            FROM (
                SELECT attempt, max(newest) AS died, toInt64(0) AS taken
                FROM (
                    SELECT attempt, rank, argMax(step, at_ns) AS newest, argMax(ended, at_ns) AS how,
                        argMax(alive, at_ns) AS lives
                    FROM heartbeats WHERE {_EARLIER} GROUP BY attempt, rank
                )
                WHERE how = {ENDED_FAILED} OR (how = 0 AND lives = 0) GROUP BY attempt
                UNION ALL
                SELECT attempt, toUInt32({LAST_STEP}) AS died, max(newest_ns) AS taken
                FROM (
                    SELECT attempt, rank, max(at_ns) AS newest_ns, argMax(notEmpty(body), at_ns) AS stands
                    FROM evidence WHERE {_EARLIER} AND kind = 'state' GROUP BY attempt, rank
                )
                WHERE stands = 1 GROUP BY attempt
            )
            GROUP BY attempt"""
"""The step in which ranks of each attempt died, and when evidence of its newest stall was taken. As in ``steps.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStepTimes(Fields):
    """The rows of ``Steps``, for several attempts and stages. Interrupted steps are not included.

    Columns: attempt, stage, step, start_ns (the first rank's), duration_ns; ordered by attempt, stage, step.
    """

    run_id: str
    before_attempt: int
    """Only earlier attempts than this one."""
    stages: tuple[int, ...]

    def sql(self) -> str:
        assert self.stages, "name one stage at least"
        return f"""
        SELECT attempt, stage, step, first_ns AS start_ns, total_ns / num_spans AS duration_ns
        FROM (
            SELECT attempt, stage, step, min(start_ns) AS first_ns, sum(duration_ns) AS total_ns, count() AS num_spans
            FROM (
                SELECT attempt, stage, step, start_ns, duration_ns
                FROM spans WHERE {_EARLIER} AND stage IN %(stages)s
            ) AS steps_of_ranks
            GLOBAL ANY LEFT JOIN ({_LIMITS}
            ) AS limits USING attempt
            WHERE NOT (step >= died_in AND start_ns < taken_ns AND start_ns + duration_ns > taken_ns)
            GROUP BY attempt, stage, step
        )
        ORDER BY attempt, stage, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMarks(Fields):
    """The times of the newest marks of these names, of several attempts.

    Columns: attempt, name, at_ns; ordered by attempt, name, at_ns.
    """

    run_id: str
    before_attempt: int
    """Only earlier attempts than this one."""
    names: tuple[str, ...]
    limit: int = 10_000
    """Largest number of rows for each attempt and name."""

    def sql(self) -> str:
        assert self.names, "give one name at least"
        return f"""
        SELECT attempt, name, at_ns
        FROM (
            SELECT attempt, name, at_ns FROM marks WHERE {_EARLIER} AND name IN %(names)s
            ORDER BY attempt, name, at_ns DESC LIMIT %(limit)s BY attempt, name
        )
        ORDER BY attempt, name, at_ns
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFirstSteps(Fields):
    """The step time of the first stored step of each attempt.

    Columns: run_id, attempt, mean_ns.
    """

    run_ids: tuple[str, ...]

    def sql(self) -> str:
        assert self.run_ids, "name one run at least"
        of_steps = f"stage = {STEP_STAGE} AND run_id IN %(run_ids)s"
        return f"""
        SELECT run_id, attempt, sum(duration_ns) / count() AS mean_ns
        FROM spans
        WHERE {of_steps} AND (run_id, attempt, step) GLOBAL IN (
            SELECT run_id, attempt, min(step) FROM spans WHERE {of_steps} GROUP BY run_id, attempt
        )
        GROUP BY run_id, attempt ORDER BY run_id, attempt
        """
