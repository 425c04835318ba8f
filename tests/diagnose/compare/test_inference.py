"""The statistics of comparisons: Student's bound, and how often equal series differ."""

import numpy as np
import pytest

from diagnose.compare.inference import locate, spread_between, student_bound
from diagnose.model.operations import Floats
from tests.each_case import each_case

NUM_PAIRS = 3000


@each_case(
    ("chance", "degrees", "bound"),
    [(0.05, 2, 4.302653), (0.001, 3, 12.92398), (0.05, 10, 2.228139), (1e-6, 10, 10.51648), (0.05, 1e6, 1.959966)],
)
def test_student_bound_matches_published_tables(chance: float, degrees: float, bound: float) -> None:
    assert student_bound(chance, degrees) == pytest.approx(bound, rel=1e-4)


def steps(random: np.random.Generator, count: int, lingering: float, shape: str) -> Floats:
    """Many series of steps, each autocorrelated by ``lingering``."""
    if shape == "two levels":
        return random.normal(0, 0.01, (count, NUM_PAIRS)) + 0.1 * (random.random((count, NUM_PAIRS)) < 0.5)
    noise = random.standard_t(3, (count + 50, NUM_PAIRS)) if shape == "long tail" else random.normal(
        0, 1, (count + 50, NUM_PAIRS)
    )  # fmt: skip
    for row in range(1, len(noise)):
        noise[row] += lingering * noise[row - 1]
    return np.asarray(noise[50:])


@each_case(
    ("lingering", "shape"), [(0.0, "normal"), (0.5, "normal"), (0.8, "normal"), (0.5, "long tail"), (0.0, "two levels")]
)
@each_case("trim", [0.2, 0.0])
def test_false_differences_of_equal_series_are_about_as_rare_as_the_given_chance(
    lingering: float, shape: str, trim: float
) -> None:
    """Also if the sides have different lengths, and different noise. A median fails with two levels, and a plain
    standard error fails with autocorrelated steps: 33% of the pairs differ at 5% for 0.8."""
    random = np.random.default_rng(1)
    a, b = steps(random, 40, lingering, shape), 2 * steps(random, 90, lingering, shape)
    offset = 0.1 if shape == "two levels" else 0.0  # the middle of b is twice that of a
    change = locate(b, trim).minus(locate(a, trim))
    distance = np.abs(change.at - offset / 2) / np.sqrt(change.variance)
    for chance, most in ((0.05, 0.065), (0.001, 0.005)):
        bounds = np.array([student_bound(chance, degrees) for degrees in change.degrees.tolist()])
        assert np.mean(distance > bounds) <= most


def test_spread_is_the_usual_one_for_few_ranks_and_the_measured_one_for_many_ranks() -> None:
    random = np.random.default_rng(2)
    few, many = (spread_between(random.normal(0, 0.03, count), 0.005) for count in (2, 500))
    assert few.variance == pytest.approx(0.005**2)
    assert many.variance**0.5 == pytest.approx(0.03, rel=0.15)
    assert few.degrees < 10 < 100 < many.degrees
