"""`rankscope runs`: what is stored."""

from datetime import datetime

from rich.markup import escape
from rich.table import Table

from diagnose.commands.options import DEFAULT_STORE, JsonOption, StoreOption, out
from telemetry.readers import open_reader
from telemetry.stores.queries import Runs

WIDTH = 250
"""Names are printed whole: they are what other commands take."""


def runs(store: StoreOption = DEFAULT_STORE, json: JsonOption = False) -> None:
    """List the runs that are stored, newest first."""
    with open_reader(store) as reader:
        rows = reader.read(Runs()).to_pylist()
    if json:
        out.print_json(data={"schema": 1, "runs": rows})
    elif not rows:
        out.print("no run stored yet; record one: `rankscope demo`, or telemetry.start(collector=...) in your loop")
    else:
        out.print(_table(rows), crop=False, no_wrap=True, overflow="ignore", width=WIDTH)


def _table(rows: list[dict[str, object]]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("run", "attempt", "started", "ranks", "steps"):
        table.add_column(name, no_wrap=True, overflow="ignore")
    for row in rows:
        started = datetime.fromtimestamp(int(str(row["started_ns"])) / 1e9).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            escape(str(row["run_id"])),
            str(row["attempt"]),
            started,
            str(row["num_ranks"]),
            f"{row['first_step']} to {row['last_step']}",
        )
    return table
