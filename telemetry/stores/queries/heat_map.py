"""Heat maps of many ranks over many steps, with at most one cell a pixel."""

from dataclasses import dataclass
from typing import Literal, get_args

from telemetry.errors import UsageError
from telemetry.group_names import GROUP_BASE
from telemetry.stages import Stage, StageClass
from telemetry.stores.interface import OF_ATTEMPT, Fields, among
from telemetry.stores.queries.windows import (
    IN_WINDOW,
    SEEN,
    WINDOW,
    WINDOW_STEPS,
    column_steps,
    num_bits,
    row_ranks,
)

Time = Literal["duration_ns", "cpu_ns"]
"""Which time is compared."""
Peers = Literal["pipeline_rank", "dp_group", "tp_group", "axes_group"]
"""Who is compared with whom: all ranks of one pipeline rank, or the members of one group."""
_PEERS: dict[Peers, str] = {
    "pipeline_rank": "modulo(intDiv(one, %(pp_stride)s), %(pp)s)",
    "dp_group": "modulo(intDiv(one, %(pp_stride)s), %(pp)s) * %(tp)s + modulo(intDiv(one, %(tp_stride)s), %(tp)s)",
    "tp_group": "one - modulo(intDiv(one, %(tp_stride)s), %(tp)s) * %(tp_stride)s",
}
_MOST = {
    "ratio": "if(isNaN(times_peers), -1., times_peers)",
    "mean_ns": "mean",
    "lead_ns": "if(isFinite(mean / times_peers), mean / times_peers - mean, -inf)",
}
"""What a rank may have most of: never NaN."""
OWN_STAGES = tuple(
    int(stage)
    for stage in Stage
    if stage.stage_class in (StageClass.COMPUTE, StageClass.HOST) and stage is not Stage.STEP
)
"""Stages in which no rank waits for another one by what they are: only there the slowest may be the culprit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCells(Fields):
    """One stage, rank by step, in at most ``max_rows`` rows and ``max_columns`` columns: of each cell its worst rank.

    A row holds neighbouring ranks, a column neighbouring steps; the first and the last column are whole where columns
    hold a window and more, so they may reach beyond the steps asked for. A rank's time in a column is the mean over the
    steps in which it had the stage, so that a cell tells the same however wide it is.

    Columns: rank (the first of the row), step (the first of the column), hottest_rank (any of equals), and of that one
    mean_ns and ratio, that to the median of its peers in the column, itself left out; NaN where it has none. Ordered
    by rank, step.
    """

    run_id: str
    attempt: int
    stage: int
    first_step: int
    last_step: int
    num_ranks: int
    max_rows: int
    max_columns: int
    pp: int = 1
    tp: int = 1
    """Of the grid: they tell who is whose peer."""
    pp_stride: int = 0
    tp_stride: int = 1
    """Ranks from one index of pp, or of tp, to the next; 0 of pp: that of a plain grid, ``tp``."""
    time: Time = "duration_ns"
    """Processor time only where every span has it."""
    peers: Peers = "pipeline_rank"
    group_degrees: tuple[int, ...] = ()
    group_strides: tuple[int, ...] = ()
    """Of the axes of an ``axes_group``. Without axes each rank is a group by itself."""
    worst: Literal["ratio", "mean_ns", "lead_ns"] = "ratio"
    """What a cell's worst rank has most of; ``lead_ns``: how much less than its peers' median it took."""

    def __post_init__(self) -> None:
        assert self.time in get_args(Time), self.time
        assert self.peers in get_args(Peers), self.peers
        sizes = (*self.group_degrees, *self.group_strides)
        if len(self.group_degrees) != len(self.group_strides) or min(sizes, default=1) < 1:
            raise UsageError(
                f"group_degrees {self.group_degrees} and group_strides {self.group_strides} are not valid axes",
                hint="give one degree and one stride, each at least 1, for each axis",
            )
        assert self.worst in _MOST, self.worst
        if not self.pp_stride:
            object.__setattr__(self, "pp_stride", self.tp)

    @property
    def steps_a_column(self) -> int:
        return column_steps(self.first_step, self.last_step, num_ranks=self.num_ranks, max_columns=self.max_columns)

    @property
    def ranks_a_row(self) -> int:
        return row_ranks(self.num_ranks, self.max_rows)

    @property
    def _group(self) -> str:
        """A number that ranks of one group share."""
        if self.peers != "axes_group":
            return _PEERS[self.peers]
        axes = zip(self.group_degrees, self.group_strides, strict=True)
        return " - ".join(["one", *(f"modulo(intDiv(one, {stride}), {degree}) * {stride}" for degree, stride in axes)])

    def sql(self) -> str:
        width, depth = self.steps_a_column, self.ranks_a_row
        most = _MOST[self.worst]
        sums = _by_window(width, self.time) if width >= WINDOW_STEPS else _by_step(width, self.time)
        return f"""
        SELECT toUInt32(row * {depth}) AS rank, toUInt32(number * {width}) AS step, hottest_rank, mean_ns, ratio
        FROM (
            SELECT intDiv(one, {depth}) AS row, number, argMax(one, most) AS hottest_rank,
                argMax(mean, most) AS mean_ns, argMax(times_peers, most) AS ratio
            FROM (SELECT one, number, mean, times_peers, {most} AS most FROM ({_beside_peers(sums, self._group)}))
            GROUP BY row, number
        )
        ORDER BY rank, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerScan(Fields):
    """In each stage and step the rank that took longest against the median rank: where to look for a slow one.

    Only stages whose time is a rank's own: in the others the longest waits for somebody else. Ranks do different work
    in different pipeline stages: what stands out here is a question, not a verdict.

    Columns: stage, step, ranks (count), slowest_rank (any of equals), slowest_ns, median_ns; ordered by stage, step.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = OWN_STAGES
    time: Time = "duration_ns"
    """Processor time only where every span has it."""
    min_ratio: float = 0.0
    """Only where the slowest is above so many medians."""

    def __post_init__(self) -> None:
        assert self.time in get_args(Time), self.time

    def sql(self) -> str:
        # One number for stage, step and rank: grouping by it takes two thirds of the time that three columns take.
        key = "bitOr(bitShiftLeft(toUInt64(stage), 56), bitOr(bitShiftLeft(toUInt64(step), 24), toUInt64(rank)))"
        return f"""
        SELECT toUInt8(bitShiftRight(place, 32)) AS stage, toUInt32(bitAnd(place, {2**32 - 1})) AS step,
            toUInt32(count()) AS ranks, toUInt32(bitAnd(argMax(key, total), {2**24 - 1})) AS slowest_rank,
            max(total) AS slowest_ns, quantileExact(0.5)(total) AS median_ns
        FROM (
            SELECT key, bitShiftRight(key, 24) AS place, total
            FROM (
                SELECT {key} AS key, sum({self.time}) AS total
                FROM spans WHERE {IN_WINDOW}{among("stage", "stages", self.stages)}
                GROUP BY key
            )
        )
        GROUP BY place HAVING slowest_ns >= median_ns * %(min_ratio)s ORDER BY place
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGroups(Fields):
    """The sets of axes along which collectives of a stage were recorded.

    Columns: peer (``telemetry/topology.py``), ordered. No row: none was recorded.
    """

    run_id: str
    attempt: int
    stage: int
    first_step: int
    last_step: int

    def sql(self) -> str:
        return f"""
        SELECT DISTINCT peer FROM spans WHERE {IN_WINDOW} AND stage = %(stage)s AND peer < {GROUP_BASE} ORDER BY peer
        """


def _beside_peers(sums: str, group: str) -> str:
    """Each rank's mean in each column beside the median of its peers.

    sorted, n even    a b|c d      without one of a, b it is c, else b
            n odd     a b c d e    without a or b (c + d) / 2, without d or e (b + c) / 2, without c (b + d) / 2
    """
    return f"""
        SELECT number, one, mean, if(mean <= middle, after, middle) AS upper,
            if(modulo(num, 2) = 0, upper, if(mean < middle, middle, before)) AS lower,
            if(num < 2, nan, 2 * mean / (lower + upper)) AS times_peers
        FROM (
            SELECT number, ranks, means, toInt64(length(means)) AS num, arraySort(means) AS sorted,
                sorted[intDiv(num + 1, 2) - 1] AS before, sorted[intDiv(num + 1, 2)] AS middle,
                sorted[intDiv(num + 1, 2) + 1] AS after
            FROM (
                SELECT number, groupArray(one) AS ranks, groupArray(total_ns / num_steps) AS means
                FROM ({sums})
                GROUP BY number, {group}
            )
        )
        ARRAY JOIN ranks AS one, means AS mean"""


def _by_step(width: int, time: Time) -> str:
    """Sums of each rank in each column; one lies within a window, so that the window's bits tell its steps. A column of
    one step needs neither them nor a division, which take a fifth of the time."""
    number, num_steps = ("step", "1") if width == 1 else (f"intDiv(step, {width})", num_bits(SEEN))
    return f"""
            SELECT rank AS one, {number} AS number, {num_steps} AS num_steps, sum({time}) AS total_ns
            FROM spans WHERE {IN_WINDOW} AND stage = %(stage)s GROUP BY one, number"""


def _by_window(width: int, time: Time) -> str:
    """The same of columns that hold one or more windows whole."""
    windows = width // WINDOW_STEPS
    return f"""
            SELECT one, intDiv(window, {windows}) AS number, sum(steps_seen) AS num_steps, sum(sum_ns) AS total_ns
            FROM (
                SELECT rank AS one, {WINDOW} AS window, {num_bits(SEEN)} AS steps_seen, sum({time}) AS sum_ns
                FROM spans WHERE {OF_ATTEMPT} AND stage = %(stage)s
                    AND {WINDOW} >= intDiv(%(first_step)s, {width}) * {windows}
                    AND {WINDOW} < (intDiv(%(last_step)s, {width}) + 1) * {windows}
                GROUP BY one, window
            )
            GROUP BY one, number"""
