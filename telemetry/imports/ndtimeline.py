"""Traces of NDTimeline, the tracer of veScale: its raw log, or its Chrome trace. The content shows which.

    timeline_run0_raw.log          2026-01-05 12:00:00,123 - metric_name: forward-compute, elapsed: 0.8,
    (LocalRawNDHandler)            recent_elapsed_raw_parts: [0.1, ...], recent_since_start_raw_parts: [...],
                                   tags: [...], step_range: range(0, 4), world_info: WorldInfo: TopoInfo(rank=0 ...) ...
                                   one line for each metric and flush

    trace_step0_9                  [{"ph": "X", "name": "forward-compute", "ts": us, "dur": us,
    (LocalTimelineNDHandler)         "args": {"rank", "step", "tp", "pp"}, "pid": dp rank}, ...]

Times are seconds (raw log) or microseconds (Chrome trace) since 1970, on a clock that NDTimeline aligns once at a
barrier. ``STAGES`` lists the metrics whose name is not that of a stage. NDTimeline has no span for a step: the step of
a rank lasts from its first to its last operation.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.rank_operations import Operation, add_operations, topology_of
from telemetry.imports.span_rows import LAST_NS, Rows, name_of, refuse_meta, whole
from telemetry.imports.stated_grid import Places
from telemetry.imports.text_input import content_of, document_of, find_inputs, lines_of, text
from telemetry.stages import STAGE_BY_LABEL, Stage
from telemetry.topology import MAX_RANKS

FORMAT = "ndtimeline"
HINT = "name timeline_run0_raw.log (LocalRawNDHandler) or trace_stepX_Y (LocalTimelineNDHandler)"
STAGES: dict[str, tuple[Stage, ...]] = {
    **{label: (stage,) for label, stage in STAGE_BY_LABEL.items() if stage is not Stage.STEP},
    "tp-allreduce": (Stage.TP_ALL_REDUCE,),
    "tp-allgather": (Stage.TP_ALL_GATHER,),
    "tp-reducescatter": (Stage.TP_REDUCE_SCATTER,),
    "unshard-all-gather": (Stage.PARAMS_ALL_GATHER,),
    "grad-reduce-scatter": (Stage.GRADS_REDUCE_SCATTER,),
    "grad-all-reduce": (Stage.GRADS_ALL_REDUCE,),
    "params-all-gather-nonoverlapping": (Stage.PARAMS_ALL_GATHER,),
    "grads-reduce-scatter-nonoverlapping": (Stage.GRADS_REDUCE_SCATTER,),
    "forward-send-backward-recv": (Stage.FORWARD_SEND, Stage.BACKWARD_RECV),
    "backward-send-forward-recv": (Stage.BACKWARD_SEND, Stage.FORWARD_RECV),
    "forward-send-forward-recv": (Stage.FORWARD_SEND, Stage.FORWARD_RECV),
    "backward-send-backward-recv": (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV),
}
"""Metric -> stages. A batch of a send and a receive is both, at the same time. Parts of the optimizer (such as
``optimizer-inner-step``) are inside ``optimizer``, and left out."""
_FIRST = "metric_name: "
_NUMBERS = r"\[([-+0-9.eE, ]*)\]"
_LINE = re.compile(
    rf"{_FIRST}(?P<metric>[\w./ -]+), elapsed: [^,]+, recent_elapsed_raw_parts: {_NUMBERS}, "
    rf"recent_since_start_raw_parts: {_NUMBERS}, tags: (?P<tags>.*), "
    r"step_range: range\((?P<first>\d{1,10}), (?P<end>\d{1,10})\), world_info: WorldInfo: TopoInfo\((?P<info>[^()]*)\)"
)
_STEP_TAG = re.compile(r"'_inner_global_step': (\d{1,10})")
_FIELD = re.compile(r"(?<!\w)(\w{1,40})=(?:'([^']{0,256})'|(\d{1,10}))")
"""A field of TopoInfo. The time to match is linear in the length of a line."""


def import_ndtimeline(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in raw logs or Chrome traces: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = [file for path in paths for file in (_in_folder(path) if path.is_dir() else [path])]
    files = find_inputs(files, (), "the logs or traces of each host")
    hosts: dict[int, str] = {}
    operations = [operation for file in files for operation in _operations(file, hosts)]
    if not operations:
        raise UnreadableError(f"{files[0]} has no operation", hint=HINT)
    topology, rows = topology_of(operations, options), Rows()
    num_left_out = add_operations(rows, operations, topology)
    return rows.run(
        options,
        name_of(files),
        topology=topology,
        hosts={operation.places.rank: hosts.get(operation.places.rank, "") for operation in operations},
        meta={"imported_from": FORMAT, "files": str(len(files)), "operations_left_out": str(num_left_out)},
    )


def _in_folder(folder: Path) -> list[Path]:
    """Logs, also rotated logs, and traces, which have no file extension."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return [path for path in found if path.name.startswith("trace_step") or "_raw.log" in path.name] or [folder]


def _operations(path: Path, hosts: dict[int, str]) -> Iterator[Operation]:
    if content_of(path, HINT).lstrip()[:1] == b"[":
        yield from _in_trace(path)
    else:
        yield from _in_log(path, hosts)


def _in_trace(path: Path) -> Iterator[Operation]:
    for event in document_of(path, HINT):
        args = event.get("args") if isinstance(event, dict) else None
        if not isinstance(args, dict) or event.get("ph") != "X":
            continue
        numbers = [whole(value, most=MAX_RANKS - 1) for value in (args.get("rank"), args.get("pp"), args.get("tp"))]
        rank, pp, tp = numbers
        step, dp = whole(args.get("step")), whole(event.get("pid"), most=MAX_RANKS - 1)
        if rank is None or pp is None or tp is None or dp is None or step is None:
            raise UnreadableError(f"{path}: an event has no rank, step, tp, pp or pid", hint=HINT)
        yield Operation(
            places=Places(rank=rank, dp=dp, pp=pp, tp=tp),
            stages=STAGES.get(text(event.get("name")), ()),
            step=step,
            start_ns=_nanoseconds(path, event.get("ts"), 1e3),
            duration_ns=_nanoseconds(path, event.get("dur"), 1e3),
        )


def _in_log(path: Path, hosts: dict[int, str]) -> Iterator[Operation]:
    lines = lines_of(path, HINT)
    for number, line in enumerate(lines, 1):
        match = _LINE.match(line, max(line.find(_FIRST), 0))
        if match is None:
            if not line.strip() or number == len(lines) > 1:
                continue  # its writer was killed
            raise UnreadableError(f"{path}, line {number} is no record of NDTimeline: {line[:80]!r}", hint=HINT)
        yield from _in_line(path, number, match, hosts)


def _in_line(path: Path, number: int, match: re.Match[str], hosts: dict[int, str]) -> Iterator[Operation]:
    info: dict[str, str] = {name: quoted or digits for name, quoted, digits in _FIELD.findall(match["info"])}
    durations, starts = ([part for part in match[group].split(",") if part.strip()] for group in (2, 3))
    steps = _steps(match, len(durations))
    if len(durations) != len(starts) or steps is None:
        raise UnreadableError(f"{path}, line {number}: the numbers of durations, starts and steps differ", hint=HINT)
    places = _places(path, number, info)
    hosts[places.rank] = text(info.get("ip", "")).removesuffix("0.0.0.0")
    for step, start, duration in zip(steps, starts, durations, strict=True):
        yield Operation(
            places=places,
            stages=STAGES.get(match["metric"], ()),
            step=step,
            start_ns=_nanoseconds(path, start, 1e9),
            duration_ns=_nanoseconds(path, duration, 1e9),
        )


def _steps(match: re.Match[str], num: int) -> Sequence[int] | None:
    """The step of each operation: from the tags, otherwise from the range, in which all steps have equally many
    operations. None if the numbers do not match."""
    tagged = [int(step) for step in _STEP_TAG.findall(match["tags"])]
    if tagged:
        return tagged if len(tagged) == num else None
    first, num_steps = int(match["first"]), int(match["end"]) - int(match["first"])
    if num == 0:
        return []
    if num_steps < 1 or num % num_steps:
        return None
    return [first + place // (num // num_steps) for place in range(num)]


def _places(path: Path, number: int, info: Mapping[str, str]) -> Places:
    names = ("rank", "dp_rank", "pp_rank", "tp_rank", "dp_size", "pp_size", "tp_size")
    found = [whole(info.get(name, ""), most=MAX_RANKS - 1) for name in names]
    if any(value is None for value in found):
        raise UnreadableError(f"{path}, line {number}: TopoInfo lacks one of {', '.join(names)}", hint=HINT)
    rank, dp, pp, tp, *degrees = (value or 0 for value in found)
    return Places(rank=rank, dp=dp, pp=pp, tp=tp, dp_degree=degrees[0], pp_degree=degrees[1], tp_degree=degrees[2])


def _nanoseconds(path: Path, value: Any, scale: float) -> int:
    try:
        found = float(value) * scale
    except (TypeError, ValueError, OverflowError):
        found = -1.0
    if not 0 <= found <= LAST_NS:
        raise UnreadableError(f"{path}: a time of {str(value)[:40]}", hint=HINT)
    return round(found)
