"""The published traces of the straggler what-if analysis (arXiv 2505.05713): a parquet file and a layout beside it.

    dp_rank  stage  rank  step  optype           start_ts  duration  seq_id  mc  mb_id
    0        0      0     23    forward-compute  0.048943  0.063458  0       0   0

``optype`` is the name of a stage in rankscope. Times are seconds, from the beginning of each sampled step. The file
holds only the first rank of a tensor-parallel group, so the imported grid is dp x pp x 1. If the file also holds the
ranks that share a sequence (dsp), each is a data-parallel rank: dp * dsp x pp x 1.

    wall time    |--- step 23 ---| gap |--- step 25 ---| gap |--- step 33 ---|
                                                            the file was written ^

Values that the file lacks stay unknown: hosts, processor time, launch stamps, sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import open_input
from telemetry.imports.interface import ImportedRun, ImportOptions, imported_name, numbered
from telemetry.imports.layout import JobLayout, find_layout, read_layout
from telemetry.stages import STAGE_BY_LABEL, Stage, StageClass
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS, Topology

FORMAT = "straggler-analysis"
GAP_NS = 10_000_000
"""Gap between two sampled steps in the imported run. The file does not contain the real gap."""
MAX_STEP_S = 86_400.0
MAX_ROWS = 20_000_000
"""Limit for one file. This number of rows needs 10 GB of memory."""
NS_PER_S = 1e9

_INTEGERS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id")
_FLOATS = ("start_ts", "duration")
_COLUMNS = (*_INTEGERS, *_FLOATS, "optype")
_COLUMNS_HINT = "check that this is a trace-NAME.parquet of the straggler analysis"
_WAY = {
    Stage.FORWARD_SEND: 1,
    Stage.FORWARD_RECV: -1,
    Stage.BACKWARD_SEND: -1,
    Stage.BACKWARD_RECV: 1,
}
"""Stage of a transfer -> direction of its peer along the pipeline: 1 for the next stage, -1 for the previous."""

Ints = npt.NDArray[np.int64]
_Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trace:
    """The file's rows as columns: integers, float seconds, and ``stage_code`` in place of ``optype``."""

    path: Path
    columns: _Columns


def import_straggler_analysis(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in a trace, or in the one trace of a folder: see :class:`telemetry.imports.interface.Importer`."""
    path = _one_trace(paths, options)
    trace = _read(path)
    layout = read_layout(options.meta or find_layout(path))
    topology, rank = _placed(trace, layout)
    start_ns, step_columns = _in_wall_time(trace, np.unique(rank))
    spans = _spans(trace, topology, rank, start_ns, step_columns)
    return ImportedRun(
        run_id=imported_name(options, layout.trial_name or path.stem.removeprefix("trace-")),
        topology=topology,
        hosts=dict.fromkeys(np.unique(rank).tolist(), ""),
        started_ns=int(step_columns["start_ns"].min()),
        meta={
            "imported_from": FORMAT,
            "file": path.name,
            "layout": f"dp {layout.dp}, pp {layout.pp}, tp {layout.tp}, dsp {layout.dsp}, vpp {layout.vpp}",
        },
        spans=spans,
    )


def _one_trace(paths: Sequence[Path], options: ImportOptions) -> Path:
    if options.dp or options.pp or options.tp or options.mesh:
        hint = "give the layout in meta-NAME.yaml: --meta FILE"
        raise UsageError(f"{FORMAT} does not accept --dp, --pp, --tp, --mesh", hint=hint)
    if len(paths) != 1:
        raise UsageError(f"{len(paths)} paths are given", hint="give one trace-NAME.parquet, or a folder with one")
    (path,) = paths
    if not path.is_dir():
        return path
    found = sorted(path.glob("trace-*.parquet"))
    if len(found) != 1:
        names = ", ".join(file.name for file in found[:5]) or "no trace-NAME.parquet"
        raise UsageError(f"{path} holds {names}", hint="give one file: `rankscope import straggler-analysis FILE`")
    return found[0]


def _read(path: Path) -> _Trace:
    try:
        with open_input(path) as file:
            rows = _rows(path, pq.ParquetFile(file, pre_buffer=False))
    except FileNotFoundError as error:
        raise UsageError(f"no file {path}", hint="give a trace-NAME.parquet or the folder it is in") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).partition("\n")[0][:200]
        raise UnreadableError(f"{path} is not a complete parquet file: {text}", hint=_COLUMNS_HINT) from error
    columns: _Columns = {name: _integers(path, rows[name], name) for name in _INTEGERS}
    columns |= {name: _seconds(path, rows[name], name) for name in _FLOATS}
    columns["stage_code"] = _stage_codes(path, rows["optype"])
    _refuse_impossible(path, columns)
    return _Trace(path=path, columns=columns)


def _rows(path: Path, file: pq.ParquetFile) -> pa.Table:
    """The columns that are used. A small file may claim more rows than any memory holds."""
    if missing := [name for name in _COLUMNS if name not in file.schema_arrow.names]:
        raise UnreadableError(f"{path} has no column {', '.join(missing)}", hint=_COLUMNS_HINT)
    if not 0 < (num_rows := file.metadata.num_rows) <= MAX_ROWS:
        what = f"{num_rows:,} operations, more than {MAX_ROWS:,}" if num_rows else "no operation"
        raise UnreadableError(
            f"{path} holds {what}", hint="import fewer steps at a time" if num_rows else _COLUMNS_HINT
        )
    # Without threads: a process that ends at once because of a bad file could end while Arrow's threads start.
    return file.read(columns=list(_COLUMNS), use_threads=False)


def _integers(path: Path, column: pa.ChunkedArray, name: str) -> Ints:
    _refuse_null(path, column, name)
    if not pa.types.is_integer(column.type):
        raise UnreadableError(f"{path}: {name} is of type {column.type}, not an integer", hint=_COLUMNS_HINT)
    try:
        return np.asarray(column.cast(pa.int64()).to_numpy())
    except pa.ArrowInvalid as error:
        raise UnreadableError(f"{path}: a {name} beyond 64 bits", hint=_COLUMNS_HINT) from error


def _seconds(path: Path, column: pa.ChunkedArray, name: str) -> npt.NDArray[np.float64]:
    """Seconds as doubles, which hold every float32 exactly."""
    _refuse_null(path, column, name)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise UnreadableError(f"{path}: {name} is of type {column.type}, not a number", hint=_COLUMNS_HINT)
    values = np.asarray(column.cast(pa.float64()).to_numpy())
    wrong = np.flatnonzero(~(np.abs(values) <= MAX_STEP_S))
    if len(wrong):
        raise UnreadableError(
            f"{path}: {name} is {values[wrong[0]]} in row {wrong[0]} ({len(wrong)} rows like it)",
            hint="times are seconds from the beginning of the step",
        )
    return values


def _stage_codes(path: Path, column: pa.ChunkedArray) -> npt.NDArray[np.uint8]:
    _refuse_null(path, column, "optype")
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise UnreadableError(f"{path}: optype is of type {column.type}, not text", hint=_COLUMNS_HINT)
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    try:
        labels = encoded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{path}: an optype is not UTF-8", hint=_COLUMNS_HINT) from error
    if unknown := sorted(label for label in labels if label not in STAGE_BY_LABEL or label == Stage.STEP.label):
        raise UnreadableError(
            f"{path}: unknown optype {', '.join(unknown)[:300]}",
            hint=f"known types: {', '.join(label for label in STAGE_BY_LABEL if label != Stage.STEP.label)}",
        )
    codes = np.array([int(STAGE_BY_LABEL[label]) for label in labels], dtype=np.uint8)
    places: Ints = encoded.indices.to_numpy()
    return codes[places]


def _refuse_null(path: Path, column: pa.ChunkedArray, name: str) -> None:
    if column.null_count:
        raise UnreadableError(f"{path}: {column.null_count} rows without {name}", hint=_COLUMNS_HINT)


def _refuse_impossible(path: Path, columns: _Columns) -> None:
    bounds: dict[str, tuple[int, float]] = dict.fromkeys(("dp_rank", "stage", "rank"), (0, MAX_RANKS - 1))
    bounds |= {"step": (0, LAST_STEP - 1), "seq_id": (0, 2**31), "duration": (0, MAX_STEP_S)}
    bounds |= dict.fromkeys(("mc", "mb_id"), (-1, 2**15 - 1))
    for name, (low, high) in bounds.items():
        values = columns[name]
        wrong = np.flatnonzero((values < low) | (values > high))
        if len(wrong):
            raise UnreadableError(
                f"{path}: {name} is {values[wrong[0]]} in row {wrong[0]}",
                hint=f"the value must be between {low} and {high}",
            )


def _placed(trace: _Trace, layout: JobLayout) -> tuple[Topology, Ints]:
    """The imported grid, and the rank of each row in it."""
    pp_rank = trace.columns["stage"]
    dp_rank, dp = _along_dp(trace, layout)
    if dp_rank.max() >= dp or pp_rank.max() >= layout.pp:
        raise UnreadableError(
            f"{trace.path} has dp_rank {dp_rank.max()} and stage {pp_rank.max()}, but its layout is {dp} x {layout.pp}",
            hint="the layout belongs to another job: select the right one with --meta FILE",
        )
    return Topology(dp=dp, pp=layout.pp), dp_rank * layout.pp + pp_rank


def _along_dp(trace: _Trace, layout: JobLayout) -> tuple[Ints, int]:
    """The data-parallel rank of each row, and the number of these ranks.

    Ranks that share a sequence can be missing in a file, have consecutive numbers in dp_rank, or differ only in
    ``rank``.
    """
    columns = trace.columns
    dp_rank = columns["dp_rank"]
    whole = layout.dp * layout.dsp
    place = (dp_rank * MAX_RANKS + columns["stage"]) * MAX_RANKS + columns["rank"]
    known, row = np.unique(place, return_inverse=True)
    cell = known // MAX_RANKS
    member = np.arange(len(known)) - np.searchsorted(cell, cell)
    num = int(member.max()) + 1
    if num == 1:
        return dp_rank, layout.dp if dp_rank.max() < layout.dp else whole
    if num > layout.dsp:
        raise UnreadableError(
            f"{trace.path}: {num} ranks have the same dp_rank and stage, but dsp_size is {layout.dsp}",
            hint="only the first rank of a tensor-parallel group is supported; check the layout of this job",
        )
    return dp_rank * layout.dsp + member[row], whole


def _in_wall_time(trace: _Trace, ranks: Ints) -> tuple[Ints, _Columns]:
    """Start of each row in wall time, and a ``step`` span for each rank and step. Steps follow each other, and the last
    one ends when the file was written."""
    columns = trace.columns
    start, duration = _ns(columns["start_ts"]), _ns(columns["duration"])
    steps, row = np.unique(columns["step"], return_inverse=True)
    first = np.full(len(steps), np.iinfo(np.int64).max)
    last = np.full(len(steps), np.iinfo(np.int64).min)
    np.minimum.at(first, row, start)
    np.maximum.at(last, row, start + duration)
    length = last - first
    begins = np.concatenate([[0], np.cumsum(length + GAP_NS)[:-1]])
    begins += max(trace.path.stat().st_mtime_ns - int(begins[-1] + length[-1]), 0)
    num = len(ranks)
    return begins[row] + start - first[row], {
        "rank": np.tile(ranks, len(steps)),
        "stage": np.full(num * len(steps), int(Stage.STEP), dtype=np.uint8),
        "step": np.repeat(steps, num),
        "start_ns": np.repeat(begins, num),
        "duration_ns": np.repeat(length, num),
    }


def _ns(seconds: npt.NDArray[np.float64]) -> Ints:
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def _spans(trace: _Trace, topology: Topology, rank: Ints, start_ns: Ints, steps: _Columns) -> pa.Table:
    columns = trace.columns
    stage = columns["stage_code"]
    communicates = np.isin(stage, [int(known) for known in Stage if known.stage_class is StageClass.COMMUNICATION])
    operations: _Columns = {
        "rank": rank,
        "stage": stage,
        "step": columns["step"],
        "start_ns": start_ns,
        "duration_ns": _ns(columns["duration"]),
        "microbatch": columns["mb_id"],
        "chunk": columns["mc"],
        "peer": _peers(stage, rank, topology),
        "op_seq": np.where(communicates, columns["seq_id"] + 1, 0),
    }
    num = len(steps["rank"])
    nothing: _Columns = {name: np.full(num, value) for name, value in _OF_A_STEP.items()}
    both = {name: np.concatenate([operations[name], (steps | nothing)[name]]) for name in operations}
    order = np.concatenate([columns["seq_id"], np.zeros(num, dtype=np.int64)])
    return numbered(both, ties=(order, _LABEL_ORDER[both["stage"]]))


_OF_A_STEP = {"microbatch": -1, "chunk": -1, "peer": -1, "op_seq": 0}
_LABEL_ORDER = np.zeros(256, dtype=np.int64)
for _place, _label in enumerate(sorted(STAGE_BY_LABEL)):
    _LABEL_ORDER[int(STAGE_BY_LABEL[_label])] = _place


def _peers(stage: npt.NDArray[np.uint8], rank: Ints, topology: Topology) -> Ints:
    """The peer of each transfer. An interleaved schedule also sends from the last pipeline stage to the first."""
    way = np.zeros(256, dtype=np.int64)
    for code, places in _WAY.items():
        way[int(code)] = places
    moved = way[stage]
    pp_rank = rank % topology.pp
    return np.where((moved != 0) & (topology.pp > 1), rank - pp_rank + (pp_rank + moved) % topology.pp, -1)
