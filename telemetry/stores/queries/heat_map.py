"""Heat maps of many ranks over many steps, with at most one cell per pixel."""

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

MAX_ROLES = 65536
MAX_ORDER = 32_768
"""An SQL text with more numbers is longer than a server accepts by default."""
Time = Literal["duration_ns", "cpu_ns"]
"""The time that is compared."""
Peers = Literal["pipeline_rank", "dp_group", "tp_group", "axes_group"]
"""The ranks that are compared with each other: those of one pipeline rank, or the members of one group."""
_PEERS: dict[Peers, str] = {
    "pipeline_rank": "modulo(intDiv(member, %(pp_stride)s), %(pp)s)",
    "dp_group": (
        "modulo(intDiv(member, %(pp_stride)s), %(pp)s) * %(tp)s + modulo(intDiv(member, %(tp_stride)s), %(tp)s)"
    ),
    "tp_group": "member - modulo(intDiv(member, %(tp_stride)s), %(tp)s) * %(tp_stride)s",
}
_SCORES = {
    "ratio": "if(isNaN(times_peers), -1., times_peers)",
    "mean_ns": "mean",
    "lead_ns": "if(isFinite(mean / times_peers), mean / times_peers - mean, -inf)",
}
"""Measure -> SQL of a score, which is never NaN. The worst rank of a cell has the highest score."""
OWN_STAGES = tuple(
    int(stage)
    for stage in Stage
    if stage.stage_class in (StageClass.COMPUTE, StageClass.HOST)
    and stage not in (Stage.STEP, Stage.COMMUNICATION_WAIT)
)
"""Stages in which ranks do not wait for other ranks. Only in these can the slowest rank be the culprit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCells(Fields):
    """One stage, ranks by steps, in at most ``max_rows`` rows and ``max_columns`` columns. A cell shows its worst rank.

    A row contains neighbouring ranks of ``order``, a column neighbouring steps. If a column contains a window or more,
    the first and the last column may reach beyond the given steps. The time of a rank in a column is its mean over the
    steps in which it had the stage. So the value does not depend on the width of the column.

    Columns: rank (the place in ``order`` of the first rank of the row), step (the first of the column), hottest_rank
    (the worst rank; any if several are equal), its mean_ns, and its ratio (mean_ns / median of its peers in the column,
    without the rank itself; NaN without peers). Ordered by rank, step.
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
    """``pp`` and ``tp`` of the grid. They determine the peers of a rank."""
    pp_stride: int = 0
    tp_stride: int = 1
    """Ranks from one index of pp, or of tp, to the next. If ``pp_stride`` is 0, it is ``tp``, as in a plain grid."""
    time: Time = "duration_ns"
    """Use processor time only if every span has it."""
    peers: Peers = "pipeline_rank"
    group_degrees: tuple[int, ...] = ()
    group_strides: tuple[int, ...] = ()
    """Degrees and strides of the axes of an ``axes_group``. Without axes, each rank is its own group."""
    worst: Literal["ratio", "mean_ns", "lead_ns"] = "ratio"
    """The worst rank of a cell has the largest value of this. ``lead_ns``: median of its peers minus its mean."""
    role_numbers: tuple[int, ...] = ()
    """A number for each rank. Ranks with different numbers are not peers. If empty, all ranks may be peers."""
    order: tuple[int, ...] = ()
    """The ranks that are shown, in this order. Other ranks are only peers. If empty, all ranks, ascending."""

    def __post_init__(self) -> None:
        assert self.time in get_args(Time), self.time
        assert self.peers in get_args(Peers), self.peers
        sizes = (*self.group_degrees, *self.group_strides)
        if len(self.group_degrees) != len(self.group_strides) or min(sizes, default=1) < 1:
            raise UsageError(
                f"group_degrees {self.group_degrees} and group_strides {self.group_strides} are not valid axes",
                hint="give one degree and one stride, each at least 1, for each axis",
            )
        assert self.worst in _SCORES, self.worst
        if not all(0 <= role < MAX_ROLES for role in self.role_numbers):
            raise UsageError("a role has no valid number", hint=f"number roles from 0 to {MAX_ROLES - 1}")
        if len({*self.order}) < len(self.order) or not all(0 <= rank < self.num_ranks for rank in self.order):
            raise UsageError("order is not valid", hint=f"name each rank from 0 to {self.num_ranks - 1} once")
        if len(self.order) > MAX_ORDER:
            raise UsageError(f"{len(self.order)} ranks cannot be ordered", hint=f"order at most {MAX_ORDER} ranks")
        if not self.pp_stride:
            object.__setattr__(self, "pp_stride", self.tp)

    @property
    def steps_a_column(self) -> int:
        return column_steps(self.first_step, self.last_step, num_ranks=self.num_ranks, max_columns=self.max_columns)

    @property
    def ranks_a_row(self) -> int:
        return row_ranks(len(self.order) or self.num_ranks, self.max_rows)

    @property
    def _group(self) -> str:
        """SQL for a number that is the same for all ranks of a group, and of one role."""
        if not self.role_numbers:
            return self._group_in_mesh
        return f"{self._group_in_mesh} + {self.num_ranks} * arrayElement({[*self.role_numbers]}, member + 1)"

    @property
    def _group_in_mesh(self) -> str:
        if self.peers != "axes_group":
            return _PEERS[self.peers]
        axes = zip(self.group_degrees, self.group_strides, strict=True)
        offsets = (f"modulo(intDiv(member, {stride}), {degree}) * {stride}" for degree, stride in axes)
        return " - ".join(["member", *offsets])

    def _placed(self, scored: str) -> tuple[str, str]:
        """SQL for the place of a rank in ``order``, and for the rows of ``scored`` that are shown."""
        if not self.order:
            return "member", f"({scored})"
        places = dict(zip(self.order, range(1, len(self.order) + 1), strict=True))
        listed = ",".join(str(places.get(rank, 0)) for rank in range(self.num_ranks))
        place = f"toInt64(arrayElement([{listed}], member + 1)) - 1 AS place"  # 0 beyond the array
        return "place", f"(SELECT member, number, mean, times_peers, score, {place} FROM ({scored})) WHERE place >= 0"

    def sql(self) -> str:
        width, depth = self.steps_a_column, self.ranks_a_row
        score = _SCORES[self.worst]
        sums = _by_window(width, self.time) if width >= WINDOW_STEPS else _by_step(width, self.time)
        scored = f"SELECT member, number, mean, times_peers, {score} AS score FROM ({_with_ratio(sums, self._group)})"
        place, shown = self._placed(scored)
        return f"""
        SELECT toUInt32(row * {depth}) AS rank, toUInt32(number * {width}) AS step, hottest_rank, mean_ns, ratio
        FROM (
            SELECT intDiv({place}, {depth}) AS row, number, argMax(member, score) AS hottest_rank,
                argMax(mean, score) AS mean_ns, argMax(times_peers, score) AS ratio
            FROM {shown}
            GROUP BY row, number
        )
        ORDER BY rank, step
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerScan(Fields):
    """The slowest rank of each stage and step, and the median of all ranks: candidates for a slow rank.

    By default, only stages without waits are used. In other stages, the longest time may be the time of a victim. Ranks
    of different pipeline stages do different work. So a large ratio alone does not prove a slow rank.

    Columns: stage, step, ranks (count), slowest_rank (any if several are equal), slowest_ns, median_ns; ordered by
    stage, step.
    """

    run_id: str
    attempt: int
    first_step: int
    last_step: int
    stages: tuple[int, ...] = OWN_STAGES
    time: Time = "duration_ns"
    """Use processor time only if every span has it."""
    min_ratio: float = 0.0
    """Only rows with slowest_ns >= min_ratio * median_ns."""

    def __post_init__(self) -> None:
        assert self.time in get_args(Time), self.time

    def sql(self) -> str:
        # One number for stage, step and rank: grouping by it takes two thirds of the time of grouping by three columns.
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

    Columns: peer (``telemetry/group_names.py``), ordered. No row if none was recorded.
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


def _with_ratio(sums: str, group: str) -> str:
    """The mean of each rank in each column, and its ratio to the median of its peers. Medians without the rank itself:

    sorted, n even    a b|c d      without a or b: c; without c or d: b
            n odd     a b c d e    without a or b: (c + d) / 2; without d or e: (b + c) / 2; without c: (b + d) / 2
    """
    return f"""
        SELECT number, member, mean, if(mean <= middle, after, middle) AS upper,
            if(modulo(num, 2) = 0, upper, if(mean < middle, middle, before)) AS lower,
            if(num < 2, nan, 2 * mean / (lower + upper)) AS times_peers
        FROM (
            SELECT number, ranks, means, toInt64(length(means)) AS num, arraySort(means) AS sorted,
                sorted[intDiv(num + 1, 2) - 1] AS before, sorted[intDiv(num + 1, 2)] AS middle,
                sorted[intDiv(num + 1, 2) + 1] AS after
            FROM (
                SELECT number, groupArray(member) AS ranks, groupArray(total_ns / num_steps) AS means
                FROM ({sums})
                GROUP BY number, {group}
            )
        )
        ARRAY JOIN ranks AS member, means AS mean"""


def _by_step(width: int, time: Time) -> str:
    """Sums of each rank in each column. A column is inside one window, so the bits of the window count its steps. A
    column of one step needs no bits and no division, which saves a fifth of the time."""
    number, num_steps = ("step", "1") if width == 1 else (f"intDiv(step, {width})", num_bits(SEEN))
    return f"""
            SELECT rank AS member, {number} AS number, {num_steps} AS num_steps, sum({time}) AS total_ns
            FROM spans WHERE {IN_WINDOW} AND stage = %(stage)s GROUP BY member, number"""


def _by_window(width: int, time: Time) -> str:
    """Sums of each rank in each column, if columns consist of whole windows."""
    windows = width // WINDOW_STEPS
    return f"""
            SELECT member, intDiv(window, {windows}) AS number, sum(steps_seen) AS num_steps, sum(sum_ns) AS total_ns
            FROM (
                SELECT rank AS member, {WINDOW} AS window, {num_bits(SEEN)} AS steps_seen, sum({time}) AS sum_ns
                FROM spans WHERE {OF_ATTEMPT} AND stage = %(stage)s
                    AND {WINDOW} >= intDiv(%(first_step)s, {width}) * {windows}
                    AND {WINDOW} < (intDiv(%(last_step)s, {width}) + 1) * {windows}
                GROUP BY member, window
            )
            GROUP BY member, number"""
