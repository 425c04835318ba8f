"""Records that never reached the store: where views have holes, and why. It is no finding: the job was not slowed."""

from dataclasses import dataclass

from telemetry.records import RECORDS_LOST
from telemetry.stores.queries import Marks
from telemetry.stores.reader import Reader

MOST_LOSSES = 100
"""The newest of an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A hole in what a rank recorded."""

    rank: int
    step: int
    """The first whose records are stored again."""
    at_ns: int
    """From when on they are missing, by the clock of the rank's host."""
    text: str
    """How many, over how long, and why."""


def load_losses(reader: Reader, run_id: str, attempt: int) -> tuple[Loss, ...]:
    """In order of time."""
    asked = Marks(run_id=run_id, attempt=attempt, names=(RECORDS_LOST,), limit=MOST_LOSSES)
    return tuple(Loss(**{name: row[name] for name in Loss.__slots__}) for row in reader.read(asked).to_pylist())
