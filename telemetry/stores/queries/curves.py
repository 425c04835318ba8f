"""Queries for charts over steps or wall clock: samples and marks, with a bounded number of rows.

SampleNames      the metrics of an attempt
SampleCurves     five values of each column of steps: the shape of a curve
SampleMedians    the median of each column of steps
MarkColumns      marks, counted by name and column of time
"""

from dataclasses import dataclass

from telemetry.errors import UsageError
from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.hosts import LAST_NS
from telemetry.stores.queries.windows import LAST_STEP

_OF_ATTEMPTS = "run_id = %(run_id)s AND attempt IN %(attempts)s"
_IN_TIME = f"{_OF_ATTEMPTS} AND at_ns >= %(first_ns)s AND at_ns <= %(last_ns)s"
_COLUMN = "intDiv(step, greatest(%(column_steps)s, 1))"


def _checked(attempts: tuple[int, ...]) -> None:
    if not attempts:
        raise UsageError("a query for charts names no attempt", hint="name at least one attempt")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleNames(Fields):
    """The first metrics of an attempt in alphabetical order. Columns: metric, samples (number); ordered by metric."""

    run_id: str
    attempt: int
    limit: int = 1000

    def sql(self) -> str:
        return f"""
        SELECT metric, count() AS samples
        FROM samples WHERE {OF_ATTEMPT} GROUP BY metric ORDER BY metric LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns(Fields):
    """The samples of metrics in a range of steps and time, in columns of ``column_steps`` steps.

    Raises:
        UsageError: ``attempts`` is empty.
    """

    run_id: str
    attempts: tuple[int, ...]
    metrics: tuple[str, ...]
    column_steps: int
    first_step: int = 0
    last_step: int = LAST_STEP
    first_ns: int = 0
    last_ns: int = LAST_NS

    def __post_init__(self) -> None:
        _checked(self.attempts)

    def _of_highest_rank(self) -> str:
        """The samples, from the highest rank of each attempt that reports a metric."""
        wanted = f"{_IN_TIME} AND step >= %(first_step)s AND step <= %(last_step)s"
        wanted += among("metric", "metrics", self.metrics)
        highest = f"SELECT attempt, metric, max(rank) FROM samples WHERE {wanted} GROUP BY attempt, metric"
        # Usually one rank reports all metrics. The engine evaluates this once, and then compares no row.
        is_one = f"(SELECT min(rank) = max(rank) FROM samples WHERE {wanted})"
        return f"samples WHERE {wanted} AND ({is_one} OR (attempt, metric, rank) GLOBAL IN ({highest}))"


def _point(function: str, by: str, condition: str = "") -> str:
    """Step, time and value of the sample that ``function`` selects by a column. Three aggregates of numbers take less
    time than one of tuples."""
    more = f", {condition}" if condition else ""
    return f"({', '.join(f'{function}({column}, {by}{more})' for column in ('step', 'at_ns', 'value'))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCurves(SampleColumns):
    """Points of charts of metrics over many steps, from the highest rank of each attempt that reports a metric.

    For every column of steps: the first and last value, the lowest and highest finite value, and the first value that
    is not finite (M4 aggregation, Jugel et al., VLDB 2014).

    Columns: attempt, metric, step, at_ns, value; ordered by attempt, metric, step, at_ns.
    """

    def sql(self) -> str:
        return f"""
        SELECT DISTINCT attempt, metric, point.1 AS step, point.2 AS at_ns, point.3 AS value
        FROM (
            SELECT attempt, metric, arrayJoin([first, last, if(num_finite > 0, lowest, first),
                if(num_finite > 0, highest, first), if(num > num_finite, wrong, first)]) AS point
            FROM (
                SELECT attempt, metric, count() AS num, countIf(isFinite(value)) AS num_finite,
                    {_point("argMin", "step")} AS first, {_point("argMax", "step")} AS last,
                    {_point("argMinIf", "value", "isFinite(value)")} AS lowest,
                    {_point("argMaxIf", "value", "isFinite(value)")} AS highest,
                    {_point("argMinIf", "step", "NOT isFinite(value)")} AS wrong
                FROM {self._of_highest_rank()}
                GROUP BY attempt, metric, {_COLUMN}
            )
        )
        ORDER BY attempt, metric, step, at_ns
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMedians(SampleColumns):
    """The median of the finite values of metrics in each column of steps, from the ranks of :class:`SampleCurves`.

    Columns: attempt, metric, step, at_ns (both in the middle of the column), value; ordered by attempt, metric, step.
    """

    def sql(self) -> str:
        return f"""
        SELECT attempt, metric, middle_step AS step, middle_ns AS at_ns, median AS value
        FROM (
            SELECT attempt, metric, toUInt32(intDiv(min(step) + max(step), 2)) AS middle_step,
                min(at_ns) + intDiv(max(at_ns) - min(at_ns), 2) AS middle_ns,
                quantileExactIf(0.5)(value, isFinite(value)) AS median, countIf(isFinite(value)) AS num_finite
            FROM {self._of_highest_rank()}
            GROUP BY attempt, metric, {_COLUMN}
        )
        WHERE num_finite > 0 ORDER BY attempt, metric, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkColumns(Fields):
    """Marks in a time range, combined by attempt, name and column of time: the newest ``limit`` of them.

    Columns: attempt, name, at_ns, step, rank, text (of the first mark), marks (number), ranks (number of different
    ranks); ordered by at_ns, attempt, name.
    """

    run_id: str
    attempts: tuple[int, ...]
    column_ns: int
    first_ns: int = 0
    last_ns: int = LAST_NS
    limit: int = 1000

    def __post_init__(self) -> None:
        _checked(self.attempts)

    def sql(self) -> str:
        return f"""
        SELECT attempt, name, first.1 AS at_ns, first.2 AS step, first.3 AS rank, first.4 AS text, marks, ranks
        FROM (
            SELECT attempt, name, argMin((at_ns, step, rank, text), (at_ns, rank, seq)) AS first, max(at_ns) AS newest,
                count() AS marks, toUInt32(uniqExact(rank)) AS ranks
            FROM marks WHERE {_IN_TIME}
            GROUP BY attempt, name, intDiv(at_ns, greatest(%(column_ns)s, 1))
            ORDER BY newest DESC, attempt, name LIMIT %(limit)s
        )
        ORDER BY at_ns, attempt, name
        """
