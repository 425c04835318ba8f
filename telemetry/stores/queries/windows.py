"""Windows of steps in SQL, and the possible widths of a column of a heat map.

    by_step     a row for each rank, stage and step        columns of 1, 2, 5, 10, 25 steps
    by_window   a row for each rank, stage and 50 steps    columns of 50, 100, 250, 500 ... steps

These are roll-ups of ``schema/0006_rollups.sql``. The engine uses one if a SELECT groups by some of its columns and has
only aggregate expressions of that script. These expressions are defined here once.
"""

from telemetry.stages import Stage
from telemetry.stores.interface import OF_ATTEMPT

LAST_STEP = 2**32 - 1
"""The largest possible step."""
STEP_STAGE = int(Stage.STEP)
IN_WINDOW = f"{OF_ATTEMPT} AND step >= %(first_step)s AND step <= %(last_step)s"

WINDOW_STEPS = 50
WINDOW = f"intDiv(step, {WINDOW_STEPS})"
"""Number of the window that contains a step."""
SEEN = f"groupBitOr(bitShiftLeft(toUInt64(1), modulo(step, {WINDOW_STEPS})))"
"""One bit for each step of a window that has rows."""
MAX_FINE_CELLS = 4_000_000
"""Limit of ranks times steps. Up to this number, times are summed step by step; above it, by windows."""
_MANTISSAS = (10, 25, 50)


def num_bits(mask: str) -> str:
    """SQL for the number of bits set in ``mask``. Works on all server versions."""
    return f"length(bitmaskToArray({mask}))"


def column_steps(first_step: int, last_step: int, *, num_ranks: int, max_columns: int) -> int:
    """Steps in one column, so that there are at most ``max_columns`` columns and the sums are not too expensive."""
    last_step = max(first_step, last_step)
    fine = num_ranks * (last_step - first_step + 1) <= MAX_FINE_CELLS
    for width in _widths():
        if (fine or width >= WINDOW_STEPS) and last_step // width - first_step // width < max(1, max_columns):
            return width
    raise AssertionError("unreachable: the widest column contains all steps")


def row_ranks(num_ranks: int, max_rows: int) -> int:
    """Ranks in one row, so that there are at most ``max_rows`` rows."""
    return max(1, -(-num_ranks // max(1, max_rows)))


def _widths() -> tuple[int, ...]:
    """1, 2, 5, 10, 25, 50, 100, 250 ... up to all steps. From 50 on, they are multiples of a window."""
    return (1, 2, 5, *(mantissa * 10**power for power in range(20) for mantissa in _MANTISSAS))
