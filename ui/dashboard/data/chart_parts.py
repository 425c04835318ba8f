"""The part of a run that charts show, and its steps: of one attempt, or of all attempts on the wall clock."""

from typing import Any, NamedTuple

from telemetry.stores.queries.hosts import LAST_NS
from telemetry.stores.queries.windows import LAST_STEP
from ui.dashboard.records import RunSummary

MAX_SAMPLES = 1_500
"""The samples of up to this many steps are queried one by one. The store combines more steps into columns."""
MAX_COLUMNS = 300
"""Columns of steps in a curve. Each has up to five values."""


class Part(NamedTuple):
    """A part of a run. ``num_steps``: the steps of all attempts together. ``name`` stays the same while a run grows."""

    attempts: tuple[int, ...]
    num_steps: int
    first_step: int = 0
    last_step: int = LAST_STEP
    first_ns: int = 0
    name: str = ""

    @classmethod
    def of(cls, run: RunSummary) -> "Part":
        """The whole attempt."""
        return cls((run.attempt,), run.last_step - run.first_step + 1)

    @property
    def is_short(self) -> bool:
        """Whether it is one attempt with few steps."""
        return len(self.attempts) == 1 and self.num_steps <= MAX_SAMPLES and not self.first_ns

    def column_steps(self, max_columns: int) -> int:
        """Steps in a column, so that all attempts have about ``max_columns`` together."""
        return max(1, -(-self.num_steps // max_columns))

    def of_query(self, run: RunSummary) -> dict[str, Any]:
        """Arguments of queries about samples."""
        bounds = {"first_step": self.first_step, "last_step": self.last_step, "first_ns": self.first_ns}
        return {"run_id": run.run_id, "attempts": self.attempts, **bounds, "last_ns": LAST_NS}
