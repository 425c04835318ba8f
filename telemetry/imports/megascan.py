"""Traces of MegaScan, the tracer of MegatronApp: one file for each rank, or the aggregated Chrome trace.

    benchmark-data-0-pipeline-1-tensor-0.json                          a list, in order
      {"name": "iteration", "ph": "B", "pad_before": ns}                             an iteration begins
      {"name": "forward", "ph": "B" | "E", "rel_ts": ns, "g_rk": 2, "dp_rk", "pp_rk", "tp_rk", "dev", "data": bytes}
      {"name": "iteration", "ph": "E", "rel_ts": ns, "duration_wall": ns, ...}       it ends

    NAME-aggregated.json
      {"name": "forward", "ph": "B" | "E", "ts": us, "args": {"iteration": 3, "g_rk", "dp_rk", "pp_rk", "tp_rk", ...}}

``rel_ts`` counts from the begin of the iteration on that rank, measured with CUDA events. The files contain no wall
clock. Iterations follow each other, on all ranks together, as in MegaScan's own aggregation. The last iteration ends
when the file was written. Steps are numbered from 0 in the order of the traced iterations.

Events of the same name may nest: an end belongs to the newest begin that is still open.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.rank_operations import Operation, add_operations, topology_of
from telemetry.imports.span_rows import LAST_NS, Rows, name_of, refuse_meta, whole
from telemetry.imports.stated_grid import Places
from telemetry.imports.text_input import document_of, find_inputs, text
from telemetry.stages import Stage
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS

FORMAT = "megascan"
HINT = "give the benchmark-*.json files of --trace-dir, their folder, or the file that aggregate.py wrote"
MAX_DEPTH = 1000
STAGES: dict[str, tuple[Stage, ...]] = {
    **dict.fromkeys(("forward", "forward-warmup"), (Stage.FORWARD_COMPUTE,)),
    **dict.fromkeys(("backward", "backward-cooldown"), (Stage.BACKWARD_COMPUTE,)),
    "optimizer": (Stage.OPTIMIZER,),
    **dict.fromkeys(("allreduce", "grad-sync"), (Stage.GRADS_ALL_REDUCE,)),
    "_reduce": (Stage.TP_ALL_REDUCE,),
    **dict.fromkeys(("_gather_along_first_dim", "_gather_along_last_dim"), (Stage.TP_ALL_GATHER,)),
    **dict.fromkeys(("_reduce_scatter_along_first_dim", "_reduce_scatter_along_last_dim"), (Stage.TP_REDUCE_SCATTER,)),
    **dict.fromkeys(("send-warmup", "send-forward"), (Stage.FORWARD_SEND,)),
    **dict.fromkeys(("recv-warmup", "recv-extra", "recv-forward"), (Stage.FORWARD_RECV,)),
    **dict.fromkeys(("send-extra", "send-cooldown", "send-backward"), (Stage.BACKWARD_SEND,)),
    **dict.fromkeys(("recv-cooldown", "recv-backward"), (Stage.BACKWARD_RECV,)),
    "exchange-next": (Stage.FORWARD_SEND, Stage.BACKWARD_RECV),
    "exchange-prev": (Stage.BACKWARD_SEND, Stage.FORWARD_RECV),
}
"""Name of an event (MegatronApp's megatron/training/trace.py) -> stages. Layers and other details are inside
``forward``, and left out."""
_TOWARDS_NEXT = (Stage.FORWARD_SEND, Stage.BACKWARD_RECV)
_TOWARDS_PREVIOUS = (Stage.BACKWARD_SEND, Stage.FORWARD_RECV)
_TENSOR = (Stage.TP_ALL_REDUCE, Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER)


@dataclass(slots=True, kw_only=True)
class _Iteration:
    """One iteration of one rank. Times of its operations are relative."""

    pad_ns: int
    operations: list[Operation]
    duration_ns: int = 0


def import_megascan(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in the files of its ranks: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(paths, (".json", ".json.gz"), "the benchmark-*.json of each rank")
    operations = [operation for operation in _all_operations(files) if operation.stages]
    if not operations:
        raise UnreadableError(f"{files[0]} has no operation of a known name", hint=HINT)
    topology, rows = topology_of(operations, options), Rows()
    usable = [_at_its_place(operation, topology.pp, topology.tp) for operation in operations]
    add_operations(rows, [operation for operation in usable if operation.stages], topology)
    return rows.run(
        options,
        name_of(files),
        topology=topology,
        hosts={operation.places.rank: "" for operation in operations},
        meta={"imported_from": FORMAT, "files": str(len(files))},
    )


def _at_its_place(operation: Operation, pp: int, tp: int) -> Operation:
    """``operation`` without transfers beyond the ends of the pipeline and collectives of one rank: the tracer records
    them, but nothing is sent."""
    unused: set[Stage] = set(_TENSOR if tp == 1 else ())
    unused |= set(_TOWARDS_NEXT if operation.places.pp == pp - 1 else ())
    unused |= set(_TOWARDS_PREVIOUS if operation.places.pp == 0 else ())
    return replace(operation, stages=tuple(stage for stage in operation.stages if stage not in unused))


def _all_operations(files: Sequence[Path]) -> list[Operation]:
    documents = [_records(path) for path in files]
    if any("args" in record for record in documents[0][:100]):
        end_ns = max(path.stat().st_mtime_ns for path in files)
        found = [
            operation for records, path in zip(documents, files, strict=True) for operation in _paired(records, path)
        ]
        last_ns = max((operation.start_ns + operation.duration_ns for operation in found), default=0)
        return [_moved(operation, max(end_ns - last_ns, 0)) for operation in found]
    return _in_wall_time([_iterations(records, path) for records, path in zip(documents, files, strict=True)], files)


def _records(path: Path) -> list[Mapping[str, Any]]:
    document = document_of(path, HINT)
    if isinstance(document, dict):
        document = document.get("traceEvents")
    if not isinstance(document, list) or not all(isinstance(record, dict) for record in document):
        raise UnreadableError(f"{path} is not a list of events", hint=HINT)
    if not document:
        raise UnreadableError(f"{path} has no event", hint=HINT)
    return document


def _iterations(records: Sequence[Mapping[str, Any]], path: Path) -> list[_Iteration]:
    """The iterations of one rank. Events between them belong to an evaluation, and are left out."""
    found: list[_Iteration] = []
    events: list[Mapping[str, Any]] | None = None
    pad_ns = 0
    for record in records:
        if record.get("name") == "iteration" and record.get("ph") == "B":
            events, pad_ns = [], _time(path, record.get("pad_before") or 0)
        elif record.get("name") == "iteration" and record.get("ph") == "E" and events is not None:
            number = {"iteration": len(found)}
            operations = list(_paired([{**event, "args": {**event, **number}} for event in events], path))
            duration_ns = _time(path, record.get("duration_wall"))
            last_ns = max((operation.start_ns + operation.duration_ns for operation in operations), default=0)
            found.append(_Iteration(pad_ns=pad_ns, operations=operations, duration_ns=max(duration_ns, last_ns)))
            events = None
        elif events is not None:
            events.append(record)
    return found


def _in_wall_time(ranks: Sequence[Sequence[_Iteration]], files: Sequence[Path]) -> list[Operation]:
    """All operations, iteration after iteration. The longest rank decides how long an iteration takes."""
    found: list[Operation] = []
    at_ns = 0
    for number in range(max(len(iterations) for iterations in ranks)):
        here = [iterations[number] for iterations in ranks if number < len(iterations)]
        at_ns += max(iteration.pad_ns for iteration in here)
        found += [_moved(operation, at_ns) for iteration in here for operation in iteration.operations]
        at_ns += max(iteration.duration_ns for iteration in here)
    end_ns = max(path.stat().st_mtime_ns for path in files)
    return [_moved(operation, max(end_ns - at_ns, 0)) for operation in found]


def _moved(operation: Operation, by_ns: int) -> Operation:
    return replace(operation, start_ns=operation.start_ns + by_ns)


def _paired(records: Sequence[Mapping[str, Any]], path: Path) -> Iterator[Operation]:
    """An operation for each pair of begin and end."""
    open_events: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for record in records:
        name, phase = text(record.get("name")), record.get("ph")
        if name not in STAGES or phase not in ("B", "E"):
            continue
        args = record.get("args")
        if not isinstance(args, dict):
            raise UnreadableError(f"{path}: {name} has no args", hint=HINT)
        places, step = _places(path, args), whole(args.get("iteration"), most=LAST_STEP - 1)
        at_ns = _time(path, args["rel_ts"]) if "rel_ts" in record else 1000 * _time(path, record.get("ts"))
        begun = open_events.setdefault((places.rank, name), [])
        if phase == "B" and len(begun) < MAX_DEPTH:
            begun.append((at_ns, -1 if step is None else step))
        elif phase == "E" and begun:
            start_ns, step_of_start = begun.pop()
            if step_of_start != step or at_ns < start_ns:
                raise UnreadableError(f"{path}: {name} of rank {places.rank} ends before it begins", hint=HINT)
            yield Operation(
                places=places,
                stages=STAGES[name],
                step=step,
                start_ns=start_ns,
                duration_ns=at_ns - start_ns,
                size_bytes=whole(args.get("data"), most=2**50) or 0,
            )


def _places(path: Path, args: Mapping[str, Any]) -> Places:
    numbers = [whole(args.get(name), most=MAX_RANKS - 1) for name in ("g_rk", "dp_rk", "pp_rk", "tp_rk")]
    rank, dp, pp, tp = numbers
    if rank is None or dp is None or pp is None or tp is None:
        raise UnreadableError(f"{path}: an event has no g_rk, dp_rk, pp_rk or tp_rk", hint=HINT)
    return Places(rank=rank, dp=dp, pp=pp, tp=tp)


def _time(path: Path, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_NS // 2000:
        raise UnreadableError(f"{path}: a time of {str(value)[:40]}", hint=HINT)
    return int(value)
