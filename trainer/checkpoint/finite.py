"""A state that is not finite is never saved: the training ends instead, and continues with the newest checkpoint.

The sum over all ranks contains the squared gradient norm and the loss. If both are finite in a step, its update is
finite too. So these two numbers of all steps since the last snapshot show whether the state can be saved.

    step       40    41    42    43    44
    norm, loss 1.2   NaN   NaN   NaN   NaN
    CPU                ^ read in each step: the training ends
    CUDA                           ^ read with the next decision, at the latest before a snapshot
"""

from collections.abc import Sequence
from math import isfinite

from telemetry.errors import RankscopeError

NUM_FIGURES = 2
"""The sum over all ranks begins with the squared gradient norm and the loss."""


class NotFiniteError(RankscopeError):
    """The loss or the gradient norm is NaN or infinite. Raised on all ranks after the same step."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"loss or gradient norm is not finite in step {step}",
            hint="continue with the newest checkpoint, as rankscope drive does. If the step fails again, check its "
            "data, the learning rate and the devices",
        )


def check_finite(rows: Sequence[Sequence[float]], *, last_step: int) -> None:
    """Return if every step is finite. ``rows``: the sums over all ranks of the steps up to ``last_step``.

    Raises:
        NotFiniteError: a step is not finite. The error names the first one.
    """
    for step, row in enumerate(rows, last_step + 1 - len(rows)):
        if not all(map(isfinite, row[:NUM_FIGURES])):
            raise NotFiniteError(step)
