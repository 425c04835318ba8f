"""What `rankscope doctor --run RUN` tells: how the clocks of a run's hosts lie apart, and how surely."""

from dataclasses import asdict, dataclass
from typing import Any

from diagnose.commands.options import out
from diagnose.host_clocks import host_clock
from diagnose.load import newest_attempt
from telemetry.clocks.align_evidence import REFERENCE, HostClock
from telemetry.errors import UsageError
from telemetry.readers import open_reader
from telemetry.ship.clock_windows import estimate_newest
from telemetry.stores.queries import LAST_STEP, HostClocks, Ranks, Runs
from telemetry.stores.reader import Reader

LOOKS_BACK = (256, 16_384, LAST_STEP)
"""Steps in which the newest window is looked for, one after another: a long run has very many."""
NUMBERS = range(1, 6)
"""Columns that stand to the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowClocks:
    """The clocks of all hosts over one window of steps."""

    first_step: int
    last_step: int
    clocks: tuple[HostClock, ...]


def tell_clocks(store: str, run: str, attempt: int | None, *, json: bool) -> bool:
    """Print the newest window; whether a host is not aligned.

    Raises:
        UnknownRunError: the store holds no such run.
        UsageError: it has not come far enough.
        UnreachableError: nobody answers.
    """
    with open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        last_step = _last_step(reader, run_id, number)
        found = stored_clocks(reader, run_id, number, last_step) or estimated_clocks(reader, run_id, number, last_step)
    if json:
        out.print_json(data=clocks_object(run_id, number, found))
    else:
        out.print(clocks_text(found), markup=False, highlight=False)
    return not all(one.aligned for one in found.clocks)


def stored_clocks(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks | None:
    """The newest window that the collector has estimated."""
    for back in LOOKS_BACK:
        asked = HostClocks(run_id=run_id, attempt=attempt, first_step=max(0, last_step - back))
        if rows := reader.read(asked).to_pylist():
            newest = [row for row in rows if row["first_step"] == rows[-1]["first_step"]]
            first, last = newest[0]["first_step"], max(row["last_step"] for row in newest)
            return WindowClocks(first_step=first, last_step=last, clocks=tuple(map(host_clock, newest)))
    return None


def estimated_clocks(reader: Reader, run_id: str, attempt: int, last_step: int) -> WindowClocks:
    """The newest window, estimated here: for a run that no collector watched as it went.

    Raises:
        UsageError: no step is finished.
    """
    for estimate in estimate_newest(reader, run_id, attempt, last_step, most=1):
        window = estimate.window
        return WindowClocks(first_step=window.first_step, last_step=window.last_step, clocks=estimate.clocks)
    hosts = sorted(set(reader.read(Ranks(run_id=run_id, attempt=attempt))["host"].to_pylist()))
    if len(hosts) != 1:
        raise UsageError(f"{run_id} has no finished step yet", hint="its ranks record one with telemetry.step(number)")
    alone = HostClock(host=hosts[0], reference=hosts[0], bound_ns=0, method=REFERENCE, reason="the only host")
    return WindowClocks(first_step=0, last_step=last_step, clocks=(alone,))


def _last_step(reader: Reader, run_id: str, attempt: int) -> int:
    runs = reader.read(Runs()).to_pylist()
    return next(int(row["last_step"]) for row in runs if (row["run_id"], row["attempt"]) == (run_id, attempt))


def clocks_object(run_id: str, attempt: int, found: WindowClocks) -> dict[str, Any]:
    """As JSON."""
    return {
        "schema": 1,
        "run": run_id,
        "attempt": attempt,
        "reference": found.clocks[0].reference,
        "window": {"first_step": found.first_step, "last_step": found.last_step},
        "clocks": [asdict(one) | {"aligned": one.aligned} for one in found.clocks],
    }


def clocks_text(found: WindowClocks) -> str:
    """For people: a line a host."""
    rows = [("host", "offset", "within", "drift", "events", "lasts", "by", ""), *map(_cells, found.clocks)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.rjust(width) if at in NUMBERS else cell.ljust(width) for at, (cell, width) in enumerate(cells))
        for cells in (zip(row, widths, strict=True) for row in rows)
    )
    head = f"clocks over steps {found.first_step} to {found.last_step}, against {found.clocks[0].reference}"
    return "\n".join((head, *(line.rstrip() for line in lines)))


def _cells(one: HostClock) -> tuple[str, ...]:
    if not one.aligned:
        return one.host, "refused", "", "", "", "", one.method, one.reason
    lasted_s = (one.last_ns - one.first_ns) / 1e9
    return (
        one.host,
        f"{one.offset_ns / 1e6:+,.3f} ms",
        f"±{one.bound_ns / 1e6:,.3f} ms",
        f"{one.drift_ppm:+.2f} ppm",
        str(one.num_events),
        f"{lasted_s:.0f} s",
        one.method,
        one.reason,
    )
