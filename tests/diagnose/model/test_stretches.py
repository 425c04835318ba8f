"""Stretches of high rows: all columns together give the same as one column after the other."""

import numpy as np

from diagnose.model.peers import Stretch, highest_stretch, highest_stretches
from tests.diagnose.over_seeds import over_seeds


@over_seeds(range(30))
def test_stretches_of_all_columns_equal_the_stretch_of_each_column(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = np.round(random.normal(-0.2, 1.0, (int(random.integers(1, 60)), 9)), int(random.integers(1, 4)))
    values[random.random(values.shape) < 0.1] = np.nan
    values[:, 0], values[:, 1] = np.nan, -1.0
    first, last = highest_stretches(values)
    found = [Stretch(first=begin, last=end) for begin, end in zip(first.tolist(), last.tolist(), strict=True)]
    assert found == [highest_stretch(column) for column in values.T]
