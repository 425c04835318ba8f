"""The work of `rankscope runs`: list what is stored."""

from collections.abc import Iterator
from datetime import datetime
from json import dumps
from typing import Any

import typer
from rich.cells import cell_len, chop_cells, set_cell_size
from rich.text import Text

from diagnose.run_list import runs_object
from telemetry.printable import printable
from ui.cli.commands.runs import NEWEST, RunsOptions
from ui.cli.output import out, progress
from ui.cli.readers import open_reader

COLUMNS = ("run", "attempt", "state", "started", "ranks", "steps", "tags")
NAME_WIDTH = 60
"""On a terminal, a longer name takes several lines. Elsewhere it stays on one line, because other commands read it."""


def runs(options: RunsOptions) -> int:
    most = (0 if options.json else NEWEST) if options.limit is None else options.limit
    with open_reader(options.store) as reader:
        found = runs_object(reader, most or None, options.tag)
    rows, num_runs = found["runs"], found["num_runs"]
    if options.json:
        typer.echo(dumps(found, indent=2))  # highlighting thousands of rows takes seconds
    elif not rows and options.tag:
        out.print(Text(f"no run has the tag {printable(options.tag)}"))
    elif not rows:
        out.print("no run stored yet; record one: `rankscope demo`, or rankscope.start(collector=...) in your loop")
    else:
        out.print(table_of(rows, NAME_WIDTH if out.is_terminal else None))
        if most and num_runs > most:
            others = num_runs - most
            hidden = "1 older run is" if others == 1 else f"{others:,} older runs are"
            progress.print(f"{hidden} not shown. Use --limit N for more runs, --limit 0 for all")
    return 0


def table_of(rows: list[dict[str, Any]], name_width: int | None) -> Text:
    """The table, with a line for each attempt. A name that is wider than ``name_width`` continues on the next line.
    There is a column for tags only if a run has tags."""
    shown = slice(None if any(row["tags"] for row in rows) else -1)
    cells = [row[shown] for row in (COLUMNS, *map(_cells, rows))]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    widths[0] = min(widths[0], name_width or widths[0])
    head, *lines = (text for row in cells for text in _lines(row, widths))
    return Text("\n").join([Text(head, style="bold"), *map(Text, lines)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    started = datetime.fromtimestamp(row["started_ns"] / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    steps = f"{row['first_step']} to {row['last_step']}"
    numbers = str(row["attempt"]), str(row["state"]), started, str(row["num_ranks"]), steps
    return printable(row["run_id"]), *numbers, " ".join(row["tags"])


def _lines(row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    first, *rest = chop_cells(row[0], widths[0]) or [""]
    yield "  ".join(set_cell_size(cell, width) for cell, width in zip((first, *row[1:]), widths, strict=True)).rstrip()
    yield from rest
