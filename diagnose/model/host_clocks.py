"""How the clocks of a run's hosts lie apart, as its collector has estimated it.

Who compares stamps of two hosts shifts them by this, and concludes nothing from a difference below the bound.
"""

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.clocks.align_evidence import HostClock
from telemetry.clocks.align_table import ClockTable
from telemetry.stores.queries import LAST_STEP, HostClocks
from telemetry.stores.reader import Reader

MARGIN_S = 300.0
"""So far before and after the steps that are looked at, windows count: the newest may not be estimated yet."""
_FIELDS = tuple(field.name for field in fields(HostClock))


def load_clocks(
    reader: Reader, run_id: str, attempt: int, steps: npt.NDArray[np.int64], step_ns: npt.NDArray[np.float64]
) -> ClockTable:
    """The clocks over some steps, and a little around; empty where none is known."""
    if not len(steps):
        return ClockTable()
    margin = int(MARGIN_S * 1e9 / max(1.0, float(np.median(step_ns))))
    asked = HostClocks(
        run_id=run_id,
        attempt=attempt,
        first_step=max(0, int(steps[0]) - margin),
        last_step=min(LAST_STEP, int(steps[-1]) + margin),
    )
    return ClockTable(host_clock(row) for row in reader.read(asked).to_pylist())


def host_clock(row: dict[str, Any]) -> HostClock:
    """From a row of ``HostClocks``."""
    return HostClock(**{name: row[name] for name in _FIELDS})
