"""The first step that is not finite is found among those since the last decision."""

from math import inf, nan

import pytest

from tests.each_case import each_case
from trainer.checkpoint.finite import NotFiniteError, check_finite

GOOD = (2.0, 1.0)


@each_case(
    ("rows", "step"),
    [
        ([(nan, 1.0)], 9),
        ([(2.0, inf)], 9),
        ([(2.0, -inf)], 9),
        ([GOOD, (nan, 1.0), (nan, nan)], 8),
        ([(nan, 1.0), GOOD, GOOD, GOOD], 6),
    ],
)
def test_error_names_the_first_step_that_is_not_finite(rows: list[tuple[float, ...]], step: int) -> None:
    with pytest.raises(NotFiniteError, match=f"not finite in step {step}\n"):
        check_finite(rows, last_step=9)


def test_only_loss_and_gradient_norm_are_checked() -> None:
    check_finite([GOOD, (*GOOD, inf, nan)], last_step=9)
