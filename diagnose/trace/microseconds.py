"""Nanoseconds as the microseconds of Chrome's JSON, such that every reader gets the nanosecond back.

``ts`` is a number of microseconds that readers hold in a double. Some round it to nanoseconds, some (Perfetto among
them) multiply by 1000 and cut off, and read its digits with an error in the last place: of 1.001 they make 1000 ns, and
a slice that follows another at once overlaps it. Where that would happen the number is the next but one above.
"""

import numpy as np
import numpy.typing as npt

from diagnose.model.span_columns import Ints


def microseconds(at_ns: Ints) -> list[float]:
    """``at_ns``, at least 0, in microseconds: exact up to six days, within 2 ns up to a hundred."""
    nearest = at_ns / 1000.0
    by_digits = at_ns // 1000 + (at_ns % 1000) / 1000.0
    cut = (_cut_off(nearest) != at_ns) | (_cut_off(by_digits) != at_ns)
    above = np.nextafter(np.nextafter(nearest, np.inf), np.inf)
    exact: list[float] = np.where(cut, above, nearest).tolist()
    return exact


def _cut_off(us: npt.NDArray[np.float64]) -> Ints:
    return np.asarray(us * 1000.0, dtype=np.int64)
