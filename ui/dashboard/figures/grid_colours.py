"""The colour, text and outline of each rank in the grid."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.peers import medians
from diagnose.whatif.analysis import WhatIf
from ui.dashboard.figures.blame import LEAST_TOP, SCALE
from ui.dashboard.figures.heat_map import Colours, colours_for
from ui.dashboard.figures.host_boxes import ink_on
from ui.dashboard.figures.standing import REMARKABLE, SIGNS, Sign, Standing
from ui.dashboard.figures.style import FAINT_HALF_WIDTH, GREY, ON_LIGHT
from ui.dashboard.metrics import READINGS, values
from ui.dashboard.records import Floats, StageTimes
from ui.dashboard.view_state import Metric

NOTHING_KNOWN = SIGNS[Standing.UNKNOWN].colour
"""Of a cell without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridColours:
    """By rank; arrays and sequences of one length."""

    value: Floats
    """NaN where nothing is known."""
    colours: Colours
    words: Sequence[str]
    """What is read by pointing at a cell."""
    short: Sequence[str]
    """What stands in a large cell, beside the rank."""
    inks: Sequence[str]
    """Of text on the colour."""
    signs: Mapping[int, Sign]
    """Of the ranks that must not be overlooked."""
    is_scale: bool = True
    """Whether a bar beside the grid tells what the colours mean; else a legend does."""


def by_standing(standings: Sequence[Standing]) -> GridColours:
    """The state of each rank."""
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
        words=[standing.value for standing in standings],
        short=[f"{SIGNS[standing].symbol} {standing}" for standing in standings],
        inks=[SIGNS[standing].ink for standing in standings],
        signs={rank: SIGNS[standing] for rank, standing in enumerate(standings) if standing in REMARKABLE},
        is_scale=False,
    )


def by_metric(times: StageTimes, metric: Metric, suspects: Collection[int]) -> GridColours:
    """The median over the steps of each rank's time in a stage."""
    milliseconds = medians(values(times, Metric.MILLISECONDS), axis=0)
    against = Metric.RATIO if metric is Metric.MILLISECONDS else metric
    compared = medians(values(times, against), axis=0)
    value, form = milliseconds if metric is Metric.MILLISECONDS else compared, READINGS[metric].written
    colours = colours_for(metric, value)
    signs = _suspect_signs(suspects, len(value))
    return GridColours(
        value=value,
        colours=colours,
        words=[
            _times_in_words(*one, READINGS[against].told)
            for one in zip(milliseconds.tolist(), compared.tolist(), strict=True)
        ],
        short=_marked(["" if np.isnan(one) else form.format(one) for one in value.tolist()], signs),
        inks=[ON_LIGHT if np.isnan(one) else ink_on(one, colours) for one in value.tolist()],
        signs=signs,
    )


def by_blame(figures: WhatIf, suspects: Collection[int]) -> GridColours:
    """How much slower than the ideal each worker alone makes a step; ranks of a tensor group share a worker."""
    index = figures.topology.index
    value = figures.by_worker[index["dp"], index["pp"]]
    colours = Colours(scale=SCALE, lowest=1.0, highest=max(LEAST_TOP, float(value.max())), title="x ideal")
    faint_to = colours.lowest + (colours.highest - colours.lowest) * FAINT_HALF_WIDTH
    signs = _suspect_signs(suspects, len(value))
    return GridColours(
        value=value,
        colours=colours,
        words=[f"its worker alone: {one:.3f}x ideal" for one in value.tolist()],
        short=_marked([f"{one:.2f}x" for one in value.tolist()], signs),
        inks=[ON_LIGHT if one > faint_to else GREY for one in value.tolist()],
        signs=signs,
    )


def _times_in_words(milliseconds: float, compared: float, against: str) -> str:
    if np.isnan(milliseconds):
        return "nothing recorded"
    return f"{milliseconds:.1f} ms" + ("" if np.isnan(compared) else f", {against.format(compared)}")


def _marked(short: list[str], signs: Mapping[int, Sign]) -> list[str]:
    return [f"{signs[rank].symbol} {text}" if rank in signs else text for rank, text in enumerate(short)]


def _suspect_signs(suspects: Collection[int], num_ranks: int) -> dict[int, Sign]:
    return {rank: SIGNS[Standing.SUSPECT] for rank in suspects if rank < num_ranks}
