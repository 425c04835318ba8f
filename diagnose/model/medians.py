"""Medians of what is partly unknown."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def medians(values: Floats, axis: int) -> Floats:
    """Median of what is known along ``axis``; NaN where nothing is.

    ``values``: any shape, NaN where unknown. The result has the same shape without that axis.

    numpy's own (``nanmedian``) goes by masked arrays, or one row after another: many times slower for those here.
    """
    ordered = np.sort(values, axis=axis)  # NaN comes last
    if not ordered.shape[axis]:
        return np.full(np.delete(ordered.shape, axis), np.nan)
    last = np.maximum(np.sum(~np.isnan(ordered), axis=axis, keepdims=True) - 1, 0)
    middle = np.concatenate([last // 2, (last + 1) // 2], axis=axis)
    return np.asarray(np.take_along_axis(ordered, middle, axis=axis).mean(axis=axis))
