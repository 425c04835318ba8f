"""The steps that an export takes: those that are stored, within the chosen window."""

from diagnose.findings import StepWindow
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs


def chosen_steps(reader: Reader, run_id: str, attempt: int, window: StepWindow | None) -> tuple[int, int]:
    """The first and the last step to export. The attempt must be stored.

    Raises:
        UsageError: no step of the window is stored.
    """
    first, last = stored_steps(reader, run_id, attempt)
    if window is None:
        return first, last
    chosen = max(first, window.first_step), min(last, window.last_step)
    if chosen[0] > chosen[1]:
        raise UsageError("no step in the chosen range is stored", hint=f"steps {first} to {last} are stored")
    return chosen


def stored_steps(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """The first and the last step of a stored attempt."""
    for row in reader.read(Runs(run_ids=(run_id,))).to_pylist():
        if (row["run_id"], row["attempt"]) == (run_id, attempt):
            return row["first_step"], row["last_step"]
    raise AssertionError(run_id)
