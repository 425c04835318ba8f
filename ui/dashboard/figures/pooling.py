"""Pool values into fewer cells: a browser can draw them, and a slow rank stays visible."""

from collections.abc import Callable

import numpy as np

from diagnose.model.operations import step_time_ns
from diagnose.model.peers import medians
from ui.dashboard.metrics import waited_for_ns
from ui.dashboard.records import Floats, Ints, PooledTimes, StageTimes
from ui.dashboard.view_state import Metric

MAX_COLUMNS = 600
MAX_ROWS = 400
"""Rows of two pixels and more."""
MAX_CELLS = 80_000
"""Each travels as four numbers: about a megabyte."""
Reduce = Callable[..., Floats]


def pooled(times: StageTimes, metric: Metric) -> PooledTimes:
    """``times`` of each step by itself, over as many neighbouring steps and ranks as it takes to fit."""
    num_steps, num_ranks = times.ns.shape
    depth = ranks_a_row(num_ranks)
    width = max(1, -(-num_steps // max_columns(num_ranks)))
    ranks = hottest_ranks(_compared(times, metric), width, depth)
    column = np.arange(len(ranks))[:, None]
    return PooledTimes(
        steps=times.steps[::width],
        steps_a_column=width,
        ranks_a_row=depth,
        over_steps="median",
        ns=pool(times.ns, width, 1)[column, ranks],
        ratio=pool(times.ratio, width, 1)[column, ranks],
        step_ns=np.array(
            [step_time_ns(times.step_ns[first : first + width]) for first in range(0, len(times.step_ns), width)]
        ),
        worst=ranks,
    )


def _compared(times: StageTimes, metric: Metric) -> Floats:
    """What the worst of a cell has most of, shape [steps, ranks]."""
    match metric:
        case Metric.RATIO:
            return times.ratio
        case Metric.WAIT:
            return waited_for_ns(times)
        case _:
            return times.ns


def ranks_a_row(num_ranks: int) -> int:
    """So that the rows fit."""
    return max(1, -(-num_ranks // MAX_ROWS))


def max_columns(num_ranks: int) -> int:
    """How many columns fit beside each other."""
    rows = -(-num_ranks // ranks_a_row(num_ranks))
    return min(MAX_COLUMNS, MAX_CELLS // max(1, rows))


def pool(values: Floats, steps: int, ranks: int) -> Floats:
    """Median over so many neighbouring steps, then maximum over so many neighbouring ranks.

    Shape [steps, ranks]; NaN where nothing is known.
    """
    if steps > 1:
        values = _reduced(values, steps, medians)
    if ranks > 1:
        values = _reduced(values.T, ranks, np.nanmax).T
    return values


def hottest_ranks(values: Floats, steps: int, ranks: int) -> Ints:
    """The rank that gives each cell of :func:`pool` its value; shape as the pooled one."""
    pooled = pool(values, steps, 1)
    blocks = _blocks(np.where(np.isnan(pooled), -np.inf, pooled).T, ranks, fill=-np.inf)
    first = np.arange(len(blocks))[:, None] * ranks
    return np.asarray((first + blocks.argmax(axis=1)).T, dtype=np.int64)


def _reduced(values: Floats, size: int, reduce: Reduce) -> Floats:
    blocks = _blocks(values, size, fill=np.nan)
    unknown = np.asarray(np.isnan(blocks).all(axis=1))
    result = reduce(np.where(unknown[:, None, :], 0.0, blocks), axis=1)
    return np.where(unknown, np.nan, result)


def _blocks(values: Floats, size: int, *, fill: float) -> Floats:
    """Rows in blocks of ``size``: shape [blocks, size, columns]; the last is filled up."""
    missing = np.full((-len(values) % size, values.shape[1]), fill)
    return np.vstack([values, missing]).reshape(-1, size, values.shape[1])
