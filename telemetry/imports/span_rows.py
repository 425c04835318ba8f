"""Collects spans as columns, and converts them to a run.

Importers add spans in any order. ``Rows.run`` converts them to an :class:`telemetry.imports.interface.ImportedRun`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.errors import UnreadableError, UsageError
from telemetry.imports.interface import DEFAULTS, DEGREES_HINT, ImportedRun, ImportOptions, imported_name, numbered
from telemetry.imports.intervals import Ints
from telemetry.stages import Stage, StageClass
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import Topology

MAX_SPANS = 20_000_000
"""Limit for one run. This number of spans needs 10 GB of memory."""
LAST_NS = 2**62
"""Latest time: in the year 2116."""
MAX_INDEX = 2**15 - 1
"""Largest number of a microbatch or chunk."""
COLUMNS = (
    *("rank", "stage", "step", "microbatch", "chunk", "peer", "op_seq"),
    *("start_ns", "duration_ns", "issue_ns", "size_bytes", "clock"),
)
_COMMUNICATION = {int(stage) for stage in Stage if stage.stage_class is StageClass.COMMUNICATION}


@dataclass(slots=True)
class Rows:
    """Spans of all ranks: arrays by :meth:`add`, single spans by :meth:`append`."""

    parts: dict[str, list[npt.NDArray[np.int64]]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    singles: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, **columns: Ints) -> None:
        """Add spans as columns of one length. Missing columns get their default."""
        num = len(columns["start_ns"])
        for name in COLUMNS:
            self.parts[name].append(columns.get(name, np.full(num, DEFAULTS.get(name, 0), dtype=np.int64)))

    def append(self, *, rank: int, stage: Stage, step: int, start_ns: int, duration_ns: int, **others: int) -> None:
        """Add one span.

        Raises:
            UnreadableError: a value is invalid, or there are too many spans.
        """
        if not (0 <= start_ns <= LAST_NS and 0 <= duration_ns <= LAST_NS):
            raise UnreadableError(
                f"times of {stage.label} of rank {rank} are not valid: it begins at {start_ns} ns and takes "
                f"{duration_ns} ns",
                hint="times are nanoseconds since 1970. Check that the file is not damaged",
            )
        if not 0 <= step < LAST_STEP:
            hint = f"steps are numbers from 0 to {LAST_STEP - 1}"
            raise UnreadableError(f"rank {rank} has a span in step {step}, which is out of range", hint=hint)
        if len(self.singles) >= MAX_SPANS:
            raise UnreadableError(f"the files have more than {MAX_SPANS:,} spans", hint="import fewer steps at a time")
        found = {"rank": rank, "stage": int(stage), "step": step, "start_ns": start_ns, "duration_ns": duration_ns}
        self.singles.append(tuple((found | others).get(name, DEFAULTS.get(name, 0)) for name in COLUMNS))

    def run(
        self,
        options: ImportOptions,
        found_name: str,
        *,
        topology: Topology,
        hosts: Mapping[int, str],
        meta: Mapping[str, str],
    ) -> ImportedRun:
        """The complete run. Operations without a number are numbered in the order of their start."""
        columns = self.columns()
        if not len(columns["start_ns"]):
            raise UnreadableError("the files contain no span", hint="check that the files belong to this format")
        columns["op_seq"] = with_numbers(columns)
        return ImportedRun(
            run_id=imported_name(options, found_name),
            topology=topology,
            hosts=dict(sorted(hosts.items())),
            started_ns=int(columns["start_ns"].min()),
            meta=meta,
            spans=numbered({**columns, "stage": columns["stage"].astype(np.uint8)}),
        )

    def columns(self) -> dict[str, npt.NDArray[np.int64]]:
        """All spans as columns."""
        singles = np.array(self.singles, dtype=np.int64).reshape(-1, len(COLUMNS)).T
        return {
            name: np.concatenate([*self.parts[name], values]).astype(np.int64)
            for name, values in zip(COLUMNS, singles, strict=True)
        }


def with_numbers(columns: Mapping[str, Ints]) -> Ints:
    """``op_seq`` of each span: as given, otherwise its position among the operations of its rank, stage and peer."""
    op_seq = columns["op_seq"].copy()
    places = np.flatnonzero(np.isin(columns["stage"], list(_COMMUNICATION)) & (op_seq == 0))
    line = np.stack([columns[name][places] for name in ("rank", "stage", "peer")])
    order = np.lexsort((columns["start_ns"][places], *line[::-1]))
    ordered = line[:, order]
    changes = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    first = np.flatnonzero(np.concatenate([np.ones(min(len(order), 1), dtype=bool), changes]))
    op_seq[places[order]] = 1 + np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    return op_seq


def refuse_meta(options: ImportOptions, format_name: str) -> None:
    """Refuse ``--meta`` for a format without a layout file.

    Raises:
        UsageError: ``--meta`` was given.
    """
    if options.meta is not None:
        raise UsageError(f"{format_name} does not accept --meta", hint=DEGREES_HINT)


def name_of(files: Sequence[Path]) -> str:
    """A name for the run: the folder of several files, or the name of one file without its extensions."""
    first = files[0].resolve()
    return first.parent.name if len(files) > 1 else first.name.partition(".")[0]


def whole(value: Any, *, most: int = LAST_NS) -> int | None:
    """``value`` as a whole number from 0 to ``most``. It may be a text. Otherwise None."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        return None
    return value
