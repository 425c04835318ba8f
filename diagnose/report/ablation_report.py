"""The table of an ablation as text for the terminal, and as one JSON object, schema 1."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from diagnose.ablation import Ablation, AblationRow, Figure
from diagnose.report.as_json import SCHEMA
from diagnose.report.as_text import line

UNKNOWN = "-"
COLUMNS = ("techniques", "step", "tokens/s", "speed", "MFU", "MFU with skipped work", "exposed", "peak memory")


def ablation_object(ablation: Ablation) -> dict[str, Any]:
    """The table as plain values. Every figure has the median, the lowest and the highest run. None: not known."""
    return {
        "schema": SCHEMA,
        "ablation": ablation.name,
        "rows": [
            {
                "row": row.number,
                "technique": row.technique,
                "options": row.options,
                "runs": [run.run_id for run in row.runs],
                "step_s": _values(row.step_s),
                "tokens_per_second": _values(row.tokens_per_second),
                "speed": ablation.speed(row),
                "mfu": _values(row.mfu),
                "mfu_with_skipped": _values(row.mfu_with_skipped),
                "exposed_s": {axis: _values(figure) for axis, figure in row.exposed_s.items()},
                "peak_memory_mib": _values(row.peak_memory_mib),
            }
            for row in ablation.rows
        ],
    }


def ablation_text(ablation: Ablation) -> RenderableType:
    """The table as a text for rich."""
    table = Table(box=None, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == COLUMNS[0] else "right")
    for row in ablation.rows:
        table.add_row(*(line(cell) for cell in ablation_cells(ablation, row)))
    rounds = max(len(row.runs) for row in ablation.rows)
    headline = f"ablation {ablation.name}: {len(ablation.rows)} rows, {rounds} run{'s' if rounds > 1 else ''} of each"
    notes = ["medians over the runs of a row; ±: half the distance between the lowest and the highest run"]
    notes += [f"row {row.number}: rankscope train {row.options}" for row in ablation.rows]
    return Group(line(headline, style="bold"), Text(), table, Text(), *(line(note, style="dim") for note in notes))


def ablation_cells(ablation: Ablation, row: AblationRow) -> tuple[str, ...]:
    """The cells of a row, in the order of ``COLUMNS``."""
    speed = ablation.speed(row)
    exposed = ", ".join(f"{axis} {figure.median * 1e3:.0f} ms" for axis, figure in row.exposed_s.items())
    return (
        row.technique if row.number == 0 else f"+ {row.technique}",
        _shown(row.step_s, lambda value: f"{value:.3f}", " s"),
        _shown(row.tokens_per_second, lambda value: f"{value:,.0f}"),
        UNKNOWN if speed is None else f"{speed:.2f}x",
        _shown(row.mfu, lambda value: f"{value:.1%}", spread=False),
        _shown(row.mfu_with_skipped, lambda value: f"{value:.1%}", spread=False),
        exposed or UNKNOWN,
        _shown(row.peak_memory_mib, lambda value: f"{value:,.0f}", " MiB", spread=False),
    )


def _shown(figure: Figure | None, words: Callable[[float], str], unit: str = "", *, spread: bool = True) -> str:
    """A figure with its spread: ``0.912 s ±1.5%``."""
    if figure is None:
        return UNKNOWN
    around = f" ±{figure.spread:.1%}" if spread and figure.spread else ""
    return f"{words(figure.median)}{unit}{around}"


def _values(figure: Figure | None) -> dict[str, float] | None:
    return None if figure is None else asdict(figure)
