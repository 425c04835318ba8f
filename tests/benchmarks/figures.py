"""The result of a benchmark: figures, each with the figure of a rival from the same run, and its bound."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from rich.console import Console
from rich.table import Table

from tests.benchmarks.pages import as_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number."""

    name: str
    value: float | None
    """None: could not be measured here, for the reason in ``note``."""
    unit: str
    rival: str | None = None
    rival_value: float | None = None
    bound: float | None = None
    """The value must not be above it."""
    low: float | None = None
    high: float | None = None
    """The 10th and the 90th percentile."""
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bound is kept. It is not kept if the figure could not be measured."""
        return self.bound is None or (self.value is not None and self.value <= self.bound)

    @property
    def ratio(self) -> float | None:
        """Ratio to the figure of the rival."""
        if self.value is None or not self.rival_value:
            return None
        return self.value / self.rival_value


class Benchmark(Protocol):
    """A module of ``tests.benchmarks`` has one of these."""

    title: str
    command: str
    """The command that reproduces the figures."""

    def run(self) -> list[Figure]:
        """Measure on this machine."""


WIDTH = 160
"""Columns of a table that goes to a file."""
HEADINGS = ("figure", "median", "p10..p90", "unit", "compared with", "its median", "ratio", "bound", "note")


def report(title: str, figures: Sequence[Figure], *, as_json: bool) -> int:
    """Print the figures as a table or as one JSON object. Returns the exit status: 1 if a bound does not hold."""
    if as_json:
        rows = [{**asdict(figure), "ratio": figure.ratio, "holds": figure.holds} for figure in figures]
        json.dump({"schema": 1, "title": title, "figures": rows}, sys.stdout, indent=1)
        print()
    else:
        table = Table(*HEADINGS, title=title, box=None, header_style="bold")
        for figure in figures:
            table.add_row(*cells(figure), style="" if figure.holds else "bold red")
        Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
    return int(not all(figure.holds for figure in figures))


def as_markdown(figures: Sequence[Figure]) -> str:
    """The table of ``docs/benchmarks.md``."""
    return as_table(HEADINGS, [cells(figure) for figure in figures])


def as_grid(figures: Sequence[Figure], corner: str) -> str:
    """A table with a row for each name before the first colon, and a column for each name and unit after it."""
    named = [(figure, *figure.name.split(": ", 1)) for figure in figures]
    columns = list(dict.fromkeys(f"{what}, {figure.unit}" if figure.unit else what for figure, _, what in named))
    rows: dict[str, dict[str, str]] = {}
    for figure, row, what in named:
        mark = "" if figure.holds else " EXCEEDED"
        column = f"{what}, {figure.unit}" if figure.unit else what
        rows.setdefault(row, {})[column] = f"{_number(figure.value)}{mark}"
    return as_table(
        [corner, *columns], [[row, *map(of_row.get, columns, [""] * len(columns))] for row, of_row in rows.items()]
    )


def cells(figure: Figure) -> tuple[str, ...]:
    """A figure as a row under ``HEADINGS``."""
    spread = "" if figure.low is None or figure.high is None else f"{_number(figure.low)}..{_number(figure.high)}"
    bound = "" if figure.bound is None else f"<= {_number(figure.bound)}{'' if figure.holds else ' EXCEEDED'}"
    return (
        figure.name,
        _number(figure.value),
        spread,
        figure.unit,
        figure.rival or "",
        _number(figure.rival_value),
        "" if figure.ratio is None else f"{figure.ratio:.3g}",
        bound,
        figure.note,
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
