"""The table of an ablation: each row has one technique more than the row before, as table 3 of MegaScale.

rankscope ablate    trains row 0, 1, 2 ... 0, 1, 2 ... Labels: ablation=NAME row=2 technique=window options=...
load_ablation       the runs with these labels  -->  figures of each run  -->  medians of each row
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.exposed import exposed_figures
from diagnose.model.load import load_view
from telemetry.errors import UnknownRunError
from telemetry.labels import labels_in
from telemetry.records import parse_meta
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LargestSamples, Runs, Samples, StoredRuns, in_portions

ABLATION, ROW, TECHNIQUE, OPTIONS = "ablation", "row", "technique", "options"
"""Names of the labels that ``rankscope ablate`` gives its runs."""
SEPARATOR = "."
"""Separates the name of the ablation, the row and the round in the name of a run."""
TOKENS, MFU, MFU_WITH_SKIPPED = "tokens-per-second", "mfu", "mfu-with-skipped"
"""Samples of the last pipeline stage. ``MFU_WITH_SKIPPED`` exists only if the run uses an attention window."""
MEMORY = "peak-memory-mib"
LEAST_SKIPPED = 2
MOST_LOOKED_AT = 100
"""Number of runs that are read to find the newest ablation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRun:
    """The figures of one run, without the first quarter of its steps (at least two). None if a figure is not known."""

    run_id: str
    step_s: float
    """Median over the steps."""
    tokens_per_second: float | None
    mfu: float | None
    """Counts the work that the model does: without the keys that a window leaves out."""
    mfu_with_skipped: float | None
    """Counts also the work that the window skips."""
    exposed_s: Mapping[str, float]
    """Exposed communication in a step by axis: the mean over ranks and steps."""
    peak_memory_mib: float | None
    """The highest of all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure over the rounds of a row."""

    median: float
    lowest: float
    highest: float

    @property
    def spread(self) -> float:
        """Half the distance between the lowest and the highest run, divided by the median."""
        return (self.highest - self.lowest) / 2 / self.median if self.median else 0.0

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Figure | None":
        """The figure of the known values, or None if no value is known."""
        known = [value for value in values if value is not None]
        return cls(median=median(known), lowest=min(known), highest=max(known)) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AblationRow:
    """The runs with the same techniques."""

    number: int
    technique: str
    """The technique that the row before does not have."""
    options: str
    """Options of `rankscope train` for all techniques of the row."""
    runs: tuple[AblationRun, ...]

    @property
    def step_s(self) -> Figure:
        found = Figure.of(run.step_s for run in self.runs)
        assert found is not None, "a row has at least one run"
        return found

    @property
    def tokens_per_second(self) -> Figure | None:
        return Figure.of(run.tokens_per_second for run in self.runs)

    @property
    def mfu(self) -> Figure | None:
        return Figure.of(run.mfu for run in self.runs)

    @property
    def mfu_with_skipped(self) -> Figure | None:
        return Figure.of(run.mfu_with_skipped for run in self.runs)

    @property
    def peak_memory_mib(self) -> Figure | None:
        return Figure.of(run.peak_memory_mib for run in self.runs)

    @property
    def exposed_s(self) -> dict[str, Figure]:
        """Axis -> exposed communication in a step, in seconds."""
        axes = dict.fromkeys(axis for run in self.runs for axis in run.exposed_s)
        found = {axis: Figure.of(run.exposed_s.get(axis) for run in self.runs) for axis in axes}
        return {axis: figure for axis, figure in found.items() if figure is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """A whole table. ``rows`` has at least one row. The first is the baseline."""

    name: str
    rows: tuple[AblationRow, ...]

    def speed(self, row: AblationRow) -> float | None:
        """Tokens per second of a row, divided by those of the first row. None if they are not known."""
        first, mine = self.rows[0].tokens_per_second, row.tokens_per_second
        return mine.median / first.median if first and mine and first.median else None


def load_ablation(reader: Reader, name: str | None = None) -> Ablation:
    """The table of the ablation ``name``, or of the newest ablation if ``name`` is None.

    Runs without a completed step after the first quarter of their steps are left out.

    Raises:
        UnknownRunError: no such ablation is stored, or none of its runs has completed steps.
    """
    stored = dict.fromkeys(row["run_id"] for row in reader.read(StoredRuns()).to_pylist())  # newest first
    if name is None:
        newest = [run_id for run_id in stored if run_id.count(SEPARATOR) >= 2][:MOST_LOOKED_AT]
        name = next((labels[ABLATION] for _, labels in _labelled(reader, newest)), None)
    if name is None:
        raise UnknownRunError("no ablation is stored", hint="make one: `rankscope ablate`")
    runs: dict[int, list[tuple[Mapping[str, str], AblationRun]]] = defaultdict(list)
    mine = [run_id for run_id in stored if run_id.startswith(name + SEPARATOR)]
    for row, labels in _labelled(reader, sorted(mine)):
        figures = _figures(reader, row) if labels[ABLATION] == name and labels.get(ROW, "").isdecimal() else None
        if figures is not None:
            runs[int(labels[ROW])].append((labels, figures))
    if not runs:
        raise UnknownRunError(f"no ablation {name!r} with completed steps", hint="make one: `rankscope ablate`")
    return Ablation(name=name, rows=tuple(_row(number, of_row) for number, of_row in sorted(runs.items())))


def _labelled(reader: Reader, run_ids: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
    """The newest attempt of each run that belongs to an ablation, with its labels, in the order of ``run_ids``."""
    rows: dict[str, Mapping[str, Any]] = {}
    for names in in_portions(run_ids):
        for row in reader.read(Runs(run_ids=names)).to_pylist():
            if row["run_id"] not in rows or row["attempt"] > rows[row["run_id"]]["attempt"]:
                rows[row["run_id"]] = row
    for run_id in run_ids:
        labels = labels_in(parse_meta(rows[run_id]["meta"])) if run_id in rows else {}
        if ABLATION in labels:
            yield rows[run_id], labels


def _row(number: int, runs: Sequence[tuple[Mapping[str, str], AblationRun]]) -> AblationRow:
    labels = runs[0][0]
    return AblationRow(
        number=number,
        technique=labels.get(TECHNIQUE, ""),
        options=labels.get(OPTIONS, ""),
        runs=tuple(run for _, run in runs),
    )


def _figures(reader: Reader, row: Mapping[str, Any]) -> AblationRun | None:
    """The figures of the run in ``row`` (of ``Runs``), or None if it completed no step after the first quarter."""
    first, last = row["first_step"], row["last_step"]
    begin = first + max(LEAST_SKIPPED, (last + 1 - first) // 4)
    if begin > last:
        return None
    of_run: dict[str, Any] = {"run_id": row["run_id"], "attempt": row["attempt"]}
    view = load_view(reader, **of_run, window=StepWindow(first_step=begin, last_step=last))
    metrics = (TOKENS, MFU, MFU_WITH_SKIPPED)
    samples = reader.read(Samples(**of_run, metrics=metrics, first_step=begin, last_step=last)).to_pylist()
    middle = {name: _middle(each["value"] for each in samples if each["metric"] == name) for name in metrics}
    memory = reader.read(LargestSamples(**of_run, metrics=(MEMORY,)))["value"].to_pylist()
    return AblationRun(
        run_id=row["run_id"],
        step_s=float(np.median(view.step_ns)) / 1e9,
        tokens_per_second=middle[TOKENS],
        mfu=middle[MFU],
        mfu_with_skipped=middle[MFU] if middle[MFU_WITH_SKIPPED] is None else middle[MFU_WITH_SKIPPED],
        exposed_s={axis: figure.seconds for axis, figure in exposed_figures(view).items()},
        peak_memory_mib=memory[0] if memory else None,
    )


def _middle(values: Iterable[float]) -> float | None:
    known = list(values)
    return float(np.median(known)) if known else None
