"""The heat map: rank by step, coloured by time or by its ratio to the peers'."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from ui.figures.style import RATIO_RANGE, RATIO_SCALE, SUSPECT, SUSPECT_ON_TIME, TIME_SCALE, framed, outline, plain
from ui.records import Floats, StageTimes
from ui.view_state import Metric

MAX_COLUMNS = 600
MAX_ROWS = 1024
MAX_LABELS = 64
ROW_PX, MIN_PX, MAX_PX = 30, 200, 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """How values become colours."""

    scale: str | list[list[float | str]]
    lowest: float
    highest: float
    title: str
    outline: str = SUSPECT


def colours_for(metric: Metric, values: Floats) -> Colours:
    """Ratios have a fixed scale, so that a colour always means the same; milliseconds span the bulk of the values."""
    if metric is Metric.RATIO:
        return Colours(scale=RATIO_SCALE, lowest=RATIO_RANGE[0], highest=RATIO_RANGE[1], title="x peers")
    known = values[np.isfinite(values)]
    low, high = (float(one) for one in np.percentile(known, (1, 99))) if len(known) else (0.0, 1.0)
    return Colours(scale=TIME_SCALE, lowest=low, highest=max(high, low + 1e-6), title="ms", outline=SUSPECT_ON_TIME)


def rank_by_step(
    times: StageTimes, metric: Metric, hosts: Sequence[str], suspects: Collection[int], *, keep: str
) -> go.Figure:
    """Rows are ranks, columns are steps, suspects outlined. Long runs are pooled by median over neighbouring steps,
    very large ones by maximum over neighbouring ranks, so that a slow rank never fades."""
    milliseconds, ratio = times.ns / 1e6, times.ratio
    shown, other = (ratio, milliseconds) if metric is Metric.RATIO else (milliseconds, ratio)
    width, depth = -(-max(1, len(shown)) // MAX_COLUMNS), -(-shown.shape[1] // MAX_ROWS)
    values = pool(shown, width, depth)
    steps = times.steps[::width]
    ranks = np.arange(0, shown.shape[1], depth)
    colours = colours_for(metric, values)
    rows = np.arange(len(ranks))
    first, second = ("%{z:.2f}x its peers", "%{customdata[0]:.1f} ms")
    if metric is Metric.MILLISECONDS:
        first, second = ("%{z:.1f} ms", "%{customdata[0]:.2f}x its peers")
    named = [f"{rank} ({plain(hosts[rank] or 'unknown host')})" for rank in ranks.tolist()]
    figure = go.Figure(
        go.Heatmap(
            z=values.T.astype(np.float32),
            x=steps,
            y=rows,
            customdata=_with_ranks(pool(other, width, depth).T, ranks),
            text=[[name] * len(steps) for name in named] if len(ranks) <= MAX_LABELS else None,
            zmin=colours.lowest,
            zmax=colours.highest,
            colorscale=colours.scale,
            xgap=1 if len(steps) <= 120 else 0,
            ygap=2 if len(ranks) <= 128 else 0,
            hovertemplate=f"<b>rank %{{text}}</b><br>step %{{x}}<br>{first}<br>{second}<extra></extra>",
            hoverongaps=False,
            colorbar=_colour_bar(colours, metric),
        )
    )
    figure.update_xaxes(title={"text": "step", "standoff": 6})
    figure.update_yaxes(autorange="reversed", showgrid=False, **_row_labels(ranks, hosts, suspects))
    figure.update_layout(shapes=_outlines(suspects, steps, width, depth, colours.outline))
    return framed(figure, height_px=int(np.clip(ROW_PX * len(ranks) + 70, MIN_PX, MAX_PX)), keep=keep)


def _with_ranks(other: Floats, ranks: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """For each cell the value that the colour does not show, and the rank."""
    return np.dstack([other, np.broadcast_to(ranks[:, None], other.shape)]).astype(np.float32)


def pool(values: Floats, steps: int, ranks: int) -> Floats:
    """Median over so many neighbouring steps, then maximum over so many neighbouring ranks; NaN where none is known."""
    if steps > 1:
        values = _blocks(values, steps, np.nanmedian)
    if ranks > 1:
        values = _blocks(values.T, ranks, np.nanmax).T
    return values


def _blocks(values: Floats, size: int, reduce: "np.ufunc | object") -> Floats:
    padding = -len(values) % size
    padded = np.vstack([values, np.full((padding, values.shape[1]), np.nan)])
    blocks = padded.reshape(-1, size, values.shape[1])
    empty = np.isnan(blocks).all(axis=1)
    filled = np.where(empty[:, None, :], 0.0, blocks)
    result: Floats = np.asarray(reduce(filled, axis=1))  # type: ignore[operator]
    return np.where(empty, np.nan, result)


def _row_labels(ranks: npt.NDArray[np.int64], hosts: Sequence[str], suspects: Collection[int]) -> dict[str, object]:
    every = -(-len(ranks) // MAX_LABELS)
    labelled = {row for row in range(0, len(ranks), every)} | {
        row for row, rank in enumerate(ranks.tolist()) if rank in suspects
    }
    text = [_label(int(ranks[row]), hosts, suspects) for row in sorted(labelled)]
    return {"tickvals": sorted(labelled), "ticktext": text}


def _label(rank: int, hosts: Sequence[str], suspects: Collection[int]) -> str:
    host = plain(hosts[rank] or "unknown")
    return f"<b>▶ suspect  rank {rank} · {host}</b>" if rank in suspects else f"rank {rank} · {host}"


def _outlines(
    suspects: Collection[int], steps: npt.NDArray[np.int64], width: int, depth: int, colour: str
) -> list[dict[str, object]]:
    if not len(steps):
        return []
    left, right = float(steps[0]) - width / 2, float(steps[-1]) + width / 2
    return [outline(left, right, rank // depth - 0.5, rank // depth + 0.5, colour) for rank in sorted(suspects)]


def _colour_bar(colours: Colours, metric: Metric) -> dict[str, object]:
    bar: dict[str, object] = {"title": {"text": colours.title}, "thickness": 12, "outlinewidth": 0, "len": 1.0}
    if metric is Metric.RATIO:
        bar |= {"tickvals": [0.5, 0.75, 1.0, 1.25, 1.5], "ticktext": ["≤0.5", "0.75", "1 equal", "1.25", "≥1.5"]}
    return bar
