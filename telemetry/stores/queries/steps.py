"""Queries about durations of steps and stages, without the step in which ranks died after a stall.

Recorders write no span for a step that an exception interrupts. Older versions did:

    step 39 |  step 40: stall .......... x      a span of 180 s that is not a complete step
            |          evidence            heartbeat: died in step 40
"""

from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import IN_WINDOW, LAST_STEP, SEEN, STEP_STAGE, WINDOW, WINDOW_STEPS, num_bits
from telemetry.tables import ENDED_FAILED

_SUMS = "count() AS num, sum(duration_ns) AS total_ns, min(cpu_ns) AS least_cpu, sum(cpu_ns) AS total_cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTotals(Fields):
    """Time of each rank in each stage, step and chunk.

    Columns: step, rank, stage, chunk, spans (count), duration_ns, cpu_ns (sums; -1 if a span has none); ordered by
    step, rank, stage, chunk.
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
            SELECT step, rank, stage, chunk, {_SUMS}
            FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
            GROUP BY step, rank, stage, chunk
        )
        ORDER BY step, rank, stage, chunk
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStageStats(Fields):
    """Time of each rank in each stage over a window of steps: the cells of the heat map.

    Columns: rank, stage, steps (in which the stage occurred), spans, median_ns, mean_ns (of the time in one step),
    median_cpu_ns (-1 if a span has none); ordered by rank, stage.
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
            SELECT rank, stage, step, {_SUMS}
            FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
            GROUP BY rank, stage, step
        )
        GROUP BY rank, stage ORDER BY rank, stage
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStageMeans(Fields):
    """Mean time of each rank in each stage over any range of steps, from whole windows of 50 steps and the rest.

        first_step |--|=======|=======|=======|----| last_step
                  by_step        by_window      by_step

    Columns: rank, stage, steps (in which the stage occurred), spans, mean_ns (of the time in one step), mean_cpu_ns
    (-1 if a span has none); ordered by rank, stage.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = ()

    def sql(self) -> str:
        of_windows = f"""
            SELECT rank, stage, {num_bits(SEEN)} AS steps_seen, {_SUMS}
            FROM spans WHERE {OF_ATTEMPT}{among("stage", "stages", self.stages)}"""
        return f"""
        SELECT rank, stage, toUInt32(sum(steps_seen)) AS steps, sum(num) AS spans, sum(total_ns) / steps AS mean_ns,
            if(min(least_cpu) < 0, -1., sum(total_cpu) / steps) AS mean_cpu_ns
        FROM (
            {of_windows} AND {WINDOW} >= {self._whole.start} AND {WINDOW} < {self._whole.stop}
            GROUP BY rank, stage, {WINDOW}
            UNION ALL
            {of_windows} AND step >= %(first_step)s AND step <= %(last_step)s
                AND (step < {self._whole.start * WINDOW_STEPS} OR step >= {self._whole.stop * WINDOW_STEPS})
            GROUP BY rank, stage, {WINDOW}
        )
        GROUP BY rank, stage ORDER BY rank, stage
        """

    @property
    def _whole(self) -> range:
        """The windows that are completely inside the range."""
        first = -(-self.first_step // WINDOW_STEPS)
        return range(first, max(first, (self.last_step + 1) // WINDOW_STEPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCounts(Fields):
    """The stages that occur in an attempt. Columns: stage, ranks, spans, duration_ns (sum); ordered by stage."""

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        everything = (self.first_step, self.last_step) == (0, LAST_STEP)
        return f"""
        SELECT stage, toUInt32(uniqExact(rank)) AS ranks, sum(num) AS spans, sum(total_ns) AS duration_ns
        FROM (
            SELECT stage, rank, count() AS num, sum(duration_ns) AS total_ns
            FROM spans WHERE {OF_ATTEMPT if everything else IN_WINDOW} GROUP BY stage, rank
        )
        GROUP BY stage ORDER BY stage
        """


_TAKEN_NS = f"""(
    SELECT max(newest) FROM (
        SELECT rank, max(at_ns) AS newest, argMax(notEmpty(body), at_ns) AS stands
        FROM evidence WHERE {OF_ATTEMPT} AND kind = 'state' GROUP BY rank
    ) WHERE stands = 1
)"""
"""When evidence of the newest stall was taken; 0 if never."""
_DIED_IN = f"""(
    SELECT if(count() = 0, toUInt32({LAST_STEP}), max(newest)) FROM (
        SELECT rank, argMax(step, at_ns) AS newest, argMax(ended, at_ns) AS how, argMax(alive, at_ns) AS lives
        FROM heartbeats WHERE {OF_ATTEMPT} GROUP BY rank
    ) WHERE how = {ENDED_FAILED} OR (how = 0 AND lives = 0)
)"""
"""The step in which ranks ended with an error, or in which their process disappeared."""
_AT_A_STALL = f"(start_ns < {_TAKEN_NS} AND start_ns + duration_ns > {_TAKEN_NS})"
INTERRUPTED = f"(step >= {_DIED_IN} AND {_AT_A_STALL})"
"""Condition for a span of an interrupted step. It uses scalars, because cluster tables allow no subquery after IN."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps(Fields):
    """Duration of each step: the mean of the ``step`` spans of its ranks. Interrupted steps are not included.

    ``diagnose/model/operations.py`` has the definition, also for several steps. With another ``stage``, it is the
    duration of that stage in each step that has it, as the mean of its spans.

    Columns: step, start_ns (the first rank's), duration_ns, num_ranks, num_spans; ordered by step.
    """

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP
    newest: int = 0
    """Largest number of steps: only the newest are read, from the end of the table. If 0, there is no limit."""
    stage: int = STEP_STAGE

    def sql(self) -> str:
        steps = f"{IN_WINDOW} AND stage = %(stage)s"
        newest = f"SELECT DISTINCT step FROM spans WHERE {steps} ORDER BY step DESC LIMIT %(newest)s"
        # Steps before a failure need no look at each span's times. The newest few have one part: it is planned faster.
        before, after = f"{steps} AND step < {_DIED_IN}", f"{steps} AND step >= {_DIED_IN} AND NOT {_AT_A_STALL}"
        few = f"{steps} AND NOT {INTERRUPTED} AND step GLOBAL IN ({newest})"
        parts = [_sums_of_steps(condition) for condition in ([few] if self.newest else [before, after])]
        return f"""
        SELECT step, first_ns AS start_ns, total_ns / num_spans AS duration_ns, num_ranks, num_spans
        FROM ({" UNION ALL ".join(parts)}) ORDER BY step
        """


def _sums_of_steps(condition: str) -> str:
    return f"""
            SELECT step, min(start_ns) AS first_ns, sum(duration_ns) AS total_ns,
                toUInt32(uniqExact(rank)) AS num_ranks, count() AS num_spans
            FROM spans WHERE {condition} GROUP BY step"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStageTimes(Fields):
    """The time of each attempt in one stage, from sums by step.

    Columns: run_id, attempt, mean_ns (the sum over all steps, as a mean over the ranks that have the stage); ordered by
    run_id, attempt.
    """

    run_ids: tuple[str, ...]
    stage: int

    def sql(self) -> str:
        assert self.run_ids, "name one run at least"
        return """
        SELECT run_id, attempt, sum(total_ns) / uniqExact(rank) AS mean_ns
        FROM (
            SELECT run_id, attempt, rank, sum(duration_ns) AS total_ns
            FROM spans WHERE stage = %(stage)s AND run_id IN %(run_ids)s
            GROUP BY run_id, attempt, rank
        )
        GROUP BY run_id, attempt ORDER BY run_id, attempt
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSteps(Fields):
    """The time of all ranks together in each stage of each step. Interrupted steps are included.

    Columns: step, stage, ranks (that have the stage in this step), spans, duration_ns (sum); ordered by step, stage.
    """

    run_id: str
    attempt: int
    first_step: int = 0
    last_step: int = LAST_STEP

    def sql(self) -> str:
        return f"""
        SELECT step, stage, toUInt32(uniqExact(rank)) AS ranks, sum(num) AS spans, sum(total_ns) AS duration_ns
        FROM (
            SELECT step, stage, rank, count() AS num, sum(duration_ns) AS total_ns
            FROM spans WHERE {IN_WINDOW} GROUP BY step, stage, rank
        )
        GROUP BY step, stage ORDER BY step, stage
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LastSteps(Fields):
    """The last completed step of each rank.

    Columns: rank, step (the highest), end_ns (of the newest); ordered by rank.
    """

    run_id: str
    attempt: int

    def sql(self) -> str:
        return f"""
        SELECT rank, highest AS step, ends_ns AS end_ns
        FROM (
            SELECT rank, max(step) AS highest, max(start_ns + duration_ns) AS ends_ns
            FROM spans WHERE {OF_ATTEMPT} AND stage = {STEP_STAGE} GROUP BY rank
        )
        ORDER BY rank
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps(Fields):
    """The steps of some ranks, by the clock of each rank. Each column of steps shows its longest step.

    Columns: rank, step, start_ns, duration_ns; ordered by rank, step.
    """

    run_id: str
    attempt: int
    ranks: tuple[int, ...]
    first_step: int = 0
    last_step: int = LAST_STEP
    column_steps: int = 1

    def sql(self) -> str:
        return f"""
        SELECT rank, longest.1 AS step, longest.2 AS start_ns, longest.3 AS duration_ns
        FROM (
            SELECT rank, argMax((step, start_ns, duration_ns), (duration_ns, step)) AS longest
            FROM spans WHERE {IN_WINDOW} AND stage = {STEP_STAGE}{among("rank", "ranks", self.ranks)}
            GROUP BY rank, intDiv(step, greatest(%(column_steps)s, 1))
        )
        ORDER BY rank, step
        """
