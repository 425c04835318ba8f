"""The clocks of a run's hosts over its newest window of steps: as its collector estimated them, else estimated here."""

from dataclasses import dataclass

from diagnose.model.host_clocks import host_clock
from telemetry.clocks.align_evidence import REFERENCE, HostClock
from telemetry.clocks.windows import estimate_newest
from telemetry.errors import UsageError
from telemetry.stores.queries import LAST_STEP, HostClocks, Ranks
from telemetry.stores.reader import Reader

LOOKS_BACK = (256, 16_384, LAST_STEP)
"""Steps in which the newest window is looked for, one after another: a long run has very many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClocks:
    """The clocks of all hosts over one window of steps."""

    first_step: int
    last_step: int
    clocks: tuple[HostClock, ...]
    """At least one; of one host several where its clock was set within the window."""


def newest_clocks(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks:
    """The newest window up to ``last_step``, the newest step of the run.

    Raises:
        UsageError: no step is finished.
        UnreachableError: the store does not answer.
    """
    stored = _stored(reader, run_id, attempt, last_step)
    return _estimated(reader, run_id, attempt, last_step) if stored is None else stored


def _stored(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks | None:
    for back in LOOKS_BACK:
        asked = HostClocks(run_id=run_id, attempt=attempt, first_step=max(0, last_step - back))
        if rows := reader.read(asked).to_pylist():
            newest = [row for row in rows if row["first_step"] == rows[-1]["first_step"]]
            first, last = newest[0]["first_step"], max(row["last_step"] for row in newest)
            return WindowClocks(first_step=first, last_step=last, clocks=tuple(map(host_clock, newest)))
    return None


def _estimated(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks:
    """Of a run that no collector watched as it went."""
    for estimate in estimate_newest(reader, run_id, attempt, last_step, most=1):
        window = estimate.window
        return WindowClocks(first_step=window.first_step, last_step=window.last_step, clocks=estimate.clocks)
    hosts = sorted(set(reader.read(Ranks(run_id=run_id, attempt=attempt))["host"].to_pylist()))
    if len(hosts) != 1:
        raise UsageError(f"{run_id} has no finished step yet", hint="its ranks record one with telemetry.step(number)")
    alone = HostClock(host=hosts[0], reference=hosts[0], bound_ns=0, method=REFERENCE, reason="the only host")
    return WindowClocks(first_step=0, last_step=last_step, clocks=(alone,))
