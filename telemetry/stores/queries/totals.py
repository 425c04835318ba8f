"""Sums of spans by rank, stage and step.

The roll-ups of ``schema/0006_rollups.sql`` answer them if the engine has them: the innermost SELECT groups by columns
of a roll-up and reads only its aggregates. Without roll-ups the spans give the same answer.
"""

from dataclasses import dataclass

from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import IN_WINDOW, LAST_STEP, SEEN, WINDOW, WINDOW_STEPS, num_bits

_SUMS = "count() AS num, sum(duration_ns) AS total_ns, min(cpu_ns) AS least_cpu, sum(cpu_ns) AS total_cpu"


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
            SELECT step, rank, stage, chunk, {_SUMS}
            FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
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
            SELECT rank, stage, step, {_SUMS}
            FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
            GROUP BY rank, stage, step
        )
        GROUP BY rank, stage ORDER BY rank, stage
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStageMeans(Fields):
    """Each rank's mean time in each stage over a window of any width, from whole windows of 50 steps and the rest.

        first_step |--|=======|=======|=======|----| last_step
                  by_step        by_window      by_step

    Columns: rank, stage, steps (in which the stage occurred), spans, mean_ns (of the time in one step), mean_cpu_ns
    (-1 where a span has none); ordered by rank, stage.
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
        """Windows that lie inside."""
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
