"""`rankscope runs`: what is stored."""

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from diagnose.commands.options import DEFAULT_STORE, JsonOption, StoreOption, out, progress
from telemetry.readers import open_reader
from telemetry.stores.queries import Runs, StoredRuns, in_portions
from telemetry.stores.reader import Reader

WIDTH = 250
"""Names are printed whole: they are what other commands take."""


NEWEST = 50
LimitOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help=f"Print the newest N runs; 0: all of them. Default: {NEWEST}, and all with --json.",
        show_default=False,
    ),
]


def runs(store: StoreOption = DEFAULT_STORE, limit: LimitOption = None, json: JsonOption = False) -> None:
    """List the runs that are stored, newest first."""
    most = (0 if json else NEWEST) if limit is None else limit
    with open_reader(store) as reader:
        names = _stored(reader)
        rows = _rows(reader, names[: most or None])
    if json:
        out.print_json(data={"schema": 1, "num_runs": len(names), "runs": rows})
    elif not rows:
        out.print("no run stored yet; record one: `rankscope demo`, or telemetry.start(collector=...) in your loop")
    else:
        out.print(_table(rows), crop=False, no_wrap=True, overflow="ignore", width=WIDTH)
        if most and len(names) > most:
            progress.print(
                f"{len(names) - most:,} older runs are not shown: --limit N shows more, --limit 0 all of them"
            )


def _stored(reader: Reader) -> list[str]:
    """Names of all runs, newest first."""
    return list(dict.fromkeys(reader.read(StoredRuns())["run_id"].to_pylist()))


def _rows(reader: Reader, names: list[str]) -> list[dict[str, Any]]:
    """Every attempt of some runs, newest first."""
    rows = [row for some in in_portions(names) for row in reader.read(Runs(run_ids=some)).to_pylist()]
    return sorted(rows, key=lambda row: (-row["started_ns"], row["run_id"], -row["attempt"]))


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
