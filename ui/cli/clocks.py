"""What `rankscope doctor --run RUN` tells: how the clocks of a run's hosts lie apart, and how surely."""

from dataclasses import asdict
from typing import Any

from diagnose.model.host_clocks import WindowClocks, newest_clocks
from diagnose.model.load import newest_attempt
from telemetry.clocks.align_evidence import HostClock
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs
from ui.cli.output import out
from ui.cli.readers import open_reader

NUMBERS = range(1, 6)
"""Columns that stand to the right."""


def tell_clocks(store: str, run: str, attempt: int | None, *, json: bool) -> bool:
    """Print the newest window; whether a host is not aligned.

    Raises:
        UnknownRunError: the store holds no such run.
        UsageError: it has not come far enough.
        UnreachableError: nobody answers.
    """
    with open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        found = newest_clocks(reader, run_id, number, _last_step(reader, run_id, number))
    if json:
        out.print_json(data=clocks_object(run_id, number, found))
    else:
        out.print(clocks_text(found), markup=False, highlight=False)
    return not all(one.aligned for one in found.clocks)


def _last_step(reader: Reader, run_id: str, attempt: int) -> int:
    runs = reader.read(Runs(run_ids=(run_id,))).to_pylist()
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
    reference = printable(found.clocks[0].reference)
    head = f"clocks over steps {found.first_step} to {found.last_step}, against {reference}"
    return "\n".join((head, *(line.rstrip() for line in lines)))


def _cells(one: HostClock) -> tuple[str, ...]:
    if not one.aligned:
        return printable(one.host), "refused", "", "", "", "", one.method, one.reason
    lasted_s = (one.last_ns - one.first_ns) / 1e9
    return (
        printable(one.host),
        f"{one.offset_ns / 1e6:+,.3f} ms",
        f"±{one.bound_ns / 1e6:,.3f} ms",
        f"{one.drift_ppm:+.2f} ppm",
        str(one.num_events),
        f"{lasted_s:.0f} s",
        one.method,
        one.reason,
    )
