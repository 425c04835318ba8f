"""How long a step takes: the one definition for the command, the list of runs and every page.

    rank 0   |--- step 7: 100 ms ---|  |--- step 8: 104 ms ----|
    rank 1   |-- step 7: 90 ms --|     |-- step 8: 94 ms --|      step 7: 95 ms, step 8: 99 ms, both: 97 ms

*Step time* of a step: the mean of the ranks' ``step`` spans. Over several steps: the mean of all these spans. A step
that an error interrupted is not counted.

A mean of sums is exact at every width: the sums and counts of a roll-up give the same figure as the spans, and the step
time times the number of steps is the time in steps. A median over the ranks has neither property.
"""

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]


def step_time_ns(duration_ns: Numbers, num_spans: Numbers | None = None) -> float:
    """The step time over several steps, nanoseconds; NaN for no step.

    Args:
        duration_ns: the step time of each.
        num_spans: ``step`` spans of each. None: as many of each, as where every rank has completed every step.
    """
    if not len(duration_ns):
        return float("nan")
    return float(np.average(duration_ns, weights=num_spans))
