"""Medians of arrays in which some values are unknown (NaN)."""

import numpy as np
import pytest

from diagnose.model.peers import medians
from tests.each_case import each_case


@each_case("axis", [0, 1, 2, -1])
@each_case("unknown", [0.0, 0.3])
def test_medians_equal_numpy_nanmedian(axis: int, unknown: float) -> None:
    random = np.random.default_rng(0)
    values = random.lognormal(size=(5, 8, 7))
    values[random.random(values.shape) < unknown] = np.nan
    values[:, 0, 0] = 1.0
    np.testing.assert_array_equal(medians(values, axis), np.nanmedian(values, axis=axis))


@pytest.mark.filterwarnings("error")
def test_median_of_only_unknown_values_is_nan_without_a_warning() -> None:
    values = np.array([[np.nan, np.nan], [np.nan, 3.0]])
    np.testing.assert_array_equal(medians(values, axis=1), [np.nan, 3.0])
    np.testing.assert_array_equal(medians(np.empty((2, 0)), axis=1), [np.nan, np.nan])
    assert np.isnan(medians(np.empty(0), axis=0))
