"""Colours of stages, as people with each kind of colour vision see them."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from telemetry.stages import Stage
from tests.each_case import each_case
from ui.dashboard.figures.blame import SCALE
from ui.dashboard.figures.style import RATIO_SCALE, STAGE_COLOURS, ink_from_faint
from ui.dashboard.figures.time_classes import CLASS_COLOURS
from ui.dashboard.pages.timeline.ideal_strip import LANES

Floats = npt.NDArray[np.float64]

LEAST_DISTANCE = 12.0
"""In CIE Lab 1976; about 2.3 can just be seen side by side."""
SEEN_BY: dict[str, list[list[float]]] = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Linear RGB as seen, by kind of cone that is missing (Machado, Oliveira, Fernandes 2009, severity 1)."""
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


LEAST_CONTRAST = 4.2
"""WCAG 2.2 asks for 4.5. Between black and white text on orange to red, no colour of text has more than 4.3."""


def coded_in(colour: str) -> Floats:
    """``#rrggbb`` as red, green and blue, 0 to 1."""
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def linear_in(coded: Floats) -> Floats:
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def lab(colour: str, kind: str) -> Floats:
    """A colour ``#rrggbb`` in CIE Lab, as it is seen."""
    seen = np.clip(np.array(SEEN_BY[kind]) @ linear_in(coded_in(colour)), 0, 1)
    x, y, z = np.cbrt(np.maximum(TO_XYZ @ seen / WHITE, 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@each_case("kind", list(SEEN_BY))
@each_case("lane", LANES)
def test_colours_of_stages_in_one_lane_are_distinguishable(lane: tuple[str, tuple[int, ...], float], kind: str) -> None:
    stages = [stage for stage in Stage if stage is not Stage.STEP and stage.stream in lane[1]]
    for one, other in itertools.combinations(stages, 2):
        distance = np.linalg.norm(lab(STAGE_COLOURS[one], kind) - lab(STAGE_COLOURS[other], kind))
        assert distance >= LEAST_DISTANCE, (one.label, other.label)


@each_case("kind", list(SEEN_BY))
def test_colours_of_wall_time_classes_differ_from_each_other_and_from_the_page(kind: str) -> None:
    colours = {**CLASS_COLOURS, "light page": "#ffffff", "dark page": "#242424"}
    for one, other in itertools.combinations(colours, 2):
        distance = np.linalg.norm(lab(colours[one], kind) - lab(colours[other], kind))
        assert distance >= LEAST_DISTANCE, (one, other)


def contrast(one: Floats, other: Floats) -> float:
    """The contrast ratio of WCAG 2.2 between two colours."""
    dark, light = sorted(float(TO_XYZ[1] @ linear_in(coded)) for coded in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("scale", "middle"), [(RATIO_SCALE, 0.5), (SCALE, 0.0)], ids=["ratio", "blame"])
def test_numbers_on_orange_and_red_cells_have_enough_contrast(scale: list[list], middle: float) -> None:
    opaque = [(place, coded_in(colour)) for place, colour in scale if place > middle and colour.startswith("#")]
    places, colours = np.array([place for place, _ in opaque]), np.array([colour for _, colour in opaque])
    assert places[-1] == 1
    for place in np.linspace(places[0], 1, 40):
        cell = np.array([np.interp(place, places, channel) for channel in colours.T])
        ink = ink_from_faint((place - middle) / (1 - middle), faint_to=0.2)
        assert contrast(cell, coded_in(ink)) >= LEAST_CONTRAST, place
