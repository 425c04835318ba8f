"""The step in which the ranks of an attempt died of a stall.

Recorders write no span for a step that an exception interrupts. Older ones did, as the ranks unwound:

    step 39 |  step 40: stall .......... x      a span of 180 s that is no step
            |          evidence            heartbeat: died in step 40
"""

from dataclasses import dataclass

from telemetry.stores.queries.windows import LAST_STEP, STEP_STAGE
from telemetry.stores.question import OF_ATTEMPT, Fields
from telemetry.tables import ENDED_FAILED

_TAKEN_NS = f"""(
    SELECT max(newest) FROM (
        SELECT rank, max(at_ns) AS newest, argMax(notEmpty(body), at_ns) AS stands
        FROM evidence WHERE {OF_ATTEMPT} AND kind = 'state' GROUP BY rank
    ) WHERE stands = 1
)"""
"""When evidence of the newest stall was taken; 0: never."""
_DIED_IN = f"""(
    SELECT if(count() = 0, toUInt32({LAST_STEP}), max(newest)) FROM (
        SELECT rank, argMax(step, at_ns) AS newest, argMax(ended, at_ns) AS how, argMax(alive, at_ns) AS lives
        FROM heartbeats WHERE {OF_ATTEMPT} GROUP BY rank
    ) WHERE how = {ENDED_FAILED} OR (how = 0 AND lives = 0)
)"""
"""The step in which ranks ended over an error, or without an end."""
INTERRUPTED = f"(step >= {_DIED_IN} AND start_ns < {_TAKEN_NS} AND start_ns + duration_ns > {_TAKEN_NS})"
"""Of a span of an attempt's steps. Scalars, for tables over a cluster allow no subquery after IN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedSteps(Fields):
    """Spans of steps that were interrupted. Columns: step, mean_ns (over ranks); ordered by step."""

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"""
        SELECT step, avg(duration_ns) AS mean_ns
        FROM spans WHERE {OF_ATTEMPT} AND stage = {STEP_STAGE} AND {INTERRUPTED}
        GROUP BY step ORDER BY step
        """
