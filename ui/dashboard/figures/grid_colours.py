"""The colour, text and outline of each rank in the grid."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.peers import medians
from diagnose.whatif.analysis import WhatIf
from ui.dashboard.figures.blame import worker_colours
from ui.dashboard.figures.hang import REMARKABLE, SIGNS, Sign, Standing
from ui.dashboard.figures.heat_map import Colours, colours_for
from ui.dashboard.figures.host_boxes import ink_on
from ui.dashboard.figures.metrics import READINGS, values
from ui.dashboard.figures.style import FAINT_HALF_WIDTH, ON_LIGHT, ink_from_faint
from ui.dashboard.records import Floats, StageTimes
from ui.dashboard.view_state import Metric

UNKNOWN_COLOUR = SIGNS[Standing.UNKNOWN].colour
"""The colour of a cell without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColours:
    """Colour and text of each rank, in arrays and sequences of equal length."""

    value: Floats
    """The value of each rank; NaN if it is unknown."""
    colours: Colours
    hover: Sequence[str]
    """Hover text of a cell."""
    short: Sequence[str]
    """Text in a large cell, below the rank."""
    inks: Sequence[str]
    """Colour of the text in a cell."""
    signs: Mapping[int, Sign]
    """Symbols of important ranks."""
    is_scale: bool = True
    """Whether a colour bar explains the colours. Otherwise a legend does."""


def by_standing(standings: Sequence[Standing]) -> GridColours:
    codes = {standing: code for code, standing in enumerate(Standing)}
    parts = len(Standing)
    flat_steps: list[list[float | str]] = [
        [edge / parts, SIGNS[standing].colour]
        for standing, code in codes.items()
        for edge in (float(code), float(code + 1))
    ]
    return GridColours(
        value=np.array([codes[standing] for standing in standings], dtype=np.float64),
        colours=Colours(scale=flat_steps, lowest=-0.5, highest=parts - 0.5, title="state"),
        hover=[standing.value for standing in standings],
        short=[f"{SIGNS[standing].symbol} {standing}" for standing in standings],
        inks=[SIGNS[standing].ink for standing in standings],
        signs={rank: SIGNS[standing] for rank, standing in enumerate(standings) if standing in REMARKABLE},
        is_scale=False,
    )


def by_metric(times: StageTimes, metric: Metric, suspects: Collection[int]) -> GridColours:
    """The median over the steps of the time of each rank in a stage."""
    milliseconds = medians(values(times, Metric.MILLISECONDS), axis=0)
    against = Metric.RATIO if metric is Metric.MILLISECONDS else metric
    compared = medians(values(times, against), axis=0)
    value, form = milliseconds if metric is Metric.MILLISECONDS else compared, READINGS[metric].cell
    colours = colours_for(metric, value)
    signs = _suspect_signs(suspects, len(value))
    return GridColours(
        value=value,
        colours=colours,
        hover=[
            _times_text(ms, ratio, READINGS[against].hover)
            for ms, ratio in zip(milliseconds.tolist(), compared.tolist(), strict=True)
        ],
        short=_marked(["" if np.isnan(reading) else form.format(reading) for reading in value.tolist()], signs),
        inks=[ON_LIGHT if np.isnan(reading) else ink_on(reading, colours) for reading in value.tolist()],
        signs=signs,
    )


def by_blame(figures: WhatIf, suspects: Collection[int]) -> GridColours:
    """The slowdown of the ideal step by each worker alone. Ranks of a tensor group share a worker."""
    index = figures.topology.index
    value = figures.by_worker[index["dp"], index["pp"]]
    colours = worker_colours(figures)
    strength = (value - colours.lowest) / (colours.highest - colours.lowest)
    signs = _suspect_signs(suspects, len(value))
    return GridColours(
        value=value,
        colours=colours,
        hover=[f"its worker alone: {slowdown:.3f}x ideal" for slowdown in value.tolist()],
        short=_marked([f"{slowdown:.2f}x" for slowdown in value.tolist()], signs),
        inks=[ink_from_faint(share, FAINT_HALF_WIDTH) for share in strength.tolist()],
        signs=signs,
    )


def _times_text(milliseconds: float, compared: float, against: str) -> str:
    if np.isnan(milliseconds):
        return "nothing recorded"
    return f"{milliseconds:.1f} ms" + ("" if np.isnan(compared) else f", {against.format(compared)}")


def _marked(short: list[str], signs: Mapping[int, Sign]) -> list[str]:
    return [f"{signs[rank].symbol} {text}" if rank in signs else text for rank, text in enumerate(short)]


def _suspect_signs(suspects: Collection[int], num_ranks: int) -> dict[int, Sign]:
    return {rank: SIGNS[Standing.SUSPECT] for rank in suspects if rank < num_ranks}
