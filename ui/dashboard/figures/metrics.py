"""The metrics of the time in a stage, and their pooling into the cells of a screen.

Pooling keeps slow ranks visible: each cell has the values of its worst rank.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from diagnose.model.operations import step_time_ns
from diagnose.model.peers import medians
from ui.dashboard.records import Floats, Ints, PooledTimes, StageTimes
from ui.dashboard.view_state import Metric

MAX_COLUMNS = 600
MAX_ROWS = 320
"""Largest number of rows of a picture. A row has at least two pixels."""
MAX_CELLS = 80_000
"""Largest number of cells of a picture. A cell is sent as four numbers: about a megabyte in all."""
Reduce = Callable[..., Floats]


def pooled(times: StageTimes, metric: Metric, shown: Ints | None = None) -> PooledTimes:
    """``times`` pooled over neighbouring steps and rows until they fit a screen.

    ``shown``: the ranks of the rows from the top, at least one. If None, all ranks in order.
    """
    num_steps, num_ranks = times.ns.shape
    rows = np.arange(num_ranks) if shown is None else shown
    depth = ranks_a_row(len(rows))
    width = max(1, -(-num_steps // max_columns(len(rows))))
    ranks = rows[hottest_ranks(_compared(times, metric)[:, rows], width, depth)]
    column = np.arange(len(ranks))[:, None]
    return PooledTimes(
        ranks=rows,
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
    """The value that decides which rank of a cell is the worst, shape [steps, ranks]."""
    match metric:
        case Metric.RATIO:
            return times.ratio
        case Metric.WAIT:
            return waited_for_ns(times)
        case _:
            return times.ns


def ranks_a_row(num_ranks: int) -> int:
    return max(1, -(-num_ranks // MAX_ROWS))


def max_columns(num_ranks: int) -> int:
    rows = -(-num_ranks // ranks_a_row(num_ranks))
    return min(MAX_COLUMNS, MAX_CELLS // max(1, rows))


def pool(values: Floats, steps: int, ranks: int) -> Floats:
    """The median over ``steps`` neighbouring steps, then the maximum over ``ranks`` neighbouring ranks.

    Shape [steps, ranks]. NaN without a value.
    """
    if steps > 1:
        values = _reduced(values, steps, medians)
    if ranks > 1:
        values = _reduced(values.T, ranks, np.nanmax).T
    return values


def hottest_ranks(values: Floats, steps: int, ranks: int) -> Ints:
    """The column of ``values`` that each cell of :func:`pool` shows, same shape."""
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
    """Rows in blocks of ``size``: shape [blocks, size, columns]. The last block is filled with ``fill``."""
    missing = np.full((-len(values) % size, values.shape[1]), fill)
    return np.vstack([values, missing]).reshape(-1, size, values.shape[1])


class Reading(NamedTuple):
    """How a metric is shown."""

    title: str
    """Title of the colour bar."""
    cell: str
    """Text in a cell, for ``format``."""
    hover: str
    """Hover text of a value, for ``format``."""
    unit: str = ""
    """Written behind a number."""

    def at(self, place: str) -> str:
        """``hover`` as a template of plotly, for a value in the field ``place``."""
        return self.hover.replace("{", "%{" + place)


READINGS = {
    Metric.RATIO: Reading("x peers", "{:.2f}x", "{:.2f}x its peers"),
    Metric.MILLISECONDS: Reading("ms", "{:.1f} ms", "{:.1f} ms", " ms"),
    Metric.SHARE: Reading("% of step", "{:.1f}%", "{:.1f}% of the step", "%"),
    Metric.WAIT: Reading("% of step", "{:.1f}%", "others wait {:.1f}% of the step for it", "%"),
    Metric.EXPOSED: Reading("% of step", "{:.1f}%", "exposed: {:.1f}% of the step", "%"),
}
BESIDE = {
    Metric.RATIO: Metric.MILLISECONDS,
    Metric.MILLISECONDS: Metric.RATIO,
    Metric.SHARE: Metric.MILLISECONDS,
    Metric.WAIT: Metric.MILLISECONDS,
    Metric.EXPOSED: Metric.MILLISECONDS,
}
"""The second metric in the hover text."""


def values(times: StageTimes | PooledTimes, metric: Metric) -> Floats:
    """Values in the units of :data:`READINGS`, shape of ``times.ns``. ``WAIT`` and ``EXPOSED`` need times that were
    queried for them."""
    match metric:
        case Metric.RATIO:
            return times.ratio
        case Metric.MILLISECONDS:
            return times.ns / 1e6
        case Metric.SHARE | Metric.EXPOSED:
            return 100 * times.ns / times.step_ns[:, None]
        case Metric.WAIT:
            return 100 * waited_for_ns(times) / times.step_ns[:, None]


def waited_for_ns(times: StageTimes | PooledTimes) -> Floats:
    """The median time that the other ranks of the group waited for each rank.

    All ranks leave a collective together, so a late rank spends less time in it (late-arriver rule of
    ``diagnose.model.collectives``). Shape of ``times.ns``. NaN without another rank.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(0.0, times.ns / times.ratio - times.ns)
