"""Structured logs of torchtitan: ``structured_logs/SOURCE.global_rank_N.*.jsonl``, one file for each rank.

    {"rank": 0, "source": "training", "host_name": "gpu-01", "step": 5, "log_type": "event", "tid": 77,
     "log_type_name": "fwd_bwd_start", "time_us": 1709500000123456, "task_name": null, ...}
    {..., "log_type_name": "fwd_bwd_end", "value": 12.5}                     value: milliseconds

    span in the log           becomes
    step                      step
    fetching_batch            data-load
    fwd_bwd                   forward-backward: on the host, with all waits. Pages draw it, detectors do not compare it
    optim                     optimizer
    gc_collect                gc
    checkpoint_save           checkpoint-write
    eval                      evaluation

Times are those of the host. The logs do not contain the mesh, compute on the device, or collectives. So detectors can
find a rank with a slow data loader, garbage collector or checkpoint, but not a slow device.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.rank_operations import Operation, add_operations
from telemetry.imports.span_rows import LAST_NS, Rows, name_of, refuse_meta, whole
from telemetry.imports.stated_grid import Places, topology_of_options
from telemetry.imports.text_input import find_inputs, objects_of, text
from telemetry.stages import Stage
from telemetry.stores.queries import LAST_STEP
from telemetry.topology import MAX_RANKS, Topology

FORMAT = "torchtitan"
HINT = "give the folder structured_logs, or its .jsonl files"
MAX_DEPTH = 1000
STAGES = {
    "step": Stage.STEP,
    "fetching_batch": Stage.DATA_LOAD,
    "fwd_bwd": Stage.FORWARD_BACKWARD,
    "forward_backward": Stage.FORWARD_BACKWARD,
    "optim": Stage.OPTIMIZER,
    "gc_collect": Stage.GC,
    "checkpoint_save": Stage.CHECKPOINT_WRITE,
    "eval": Stage.EVALUATION,
}
"""Name of a span in torchtitan 0.3 (torchtitan/trainer.py) -> stage. ``forward_backward`` is from its RL trainer."""
_START, _END = "_start", "_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """The contents of one file."""

    path: Path
    rank: int
    source: str
    host: str
    operations: list[Operation]


def import_torchtitan(paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
    """The run in the logs of its ranks: see :class:`telemetry.imports.interface.Importer`."""
    refuse_meta(options, FORMAT)
    files = find_inputs(paths, (".jsonl", ".jsonl.gz"), "the .jsonl of each rank")
    logs = _of_trainer([log for path in files if (log := _log(path)) is not None], files[0])
    world_size = max(logs) + 1
    topology = topology_of_options(options, world_size) or Topology(dp=world_size)
    rows = Rows()
    add_operations(rows, [operation for log in logs.values() for operation in log.operations], topology)
    return rows.run(
        options,
        _name(files),
        topology=topology,
        hosts={rank: log.host for rank, log in logs.items()},
        meta={"imported_from": FORMAT, "files": str(len(logs)), "source": next(iter(logs.values())).source},
    )


def _name(files: Sequence[Path]) -> str:
    """The folder of the job, which contains ``structured_logs``."""
    folder = files[0].resolve().parent
    return folder.parent.name if folder.name == "structured_logs" else name_of(files)


def _of_trainer(logs: Sequence[_Log], first: Path) -> dict[int, _Log]:
    """Rank -> its log. If there are several sources (reinforcement learning), the source whose ranks train in steps.

    Raises:
        UnreadableError: no source has steps, several have steps, or two files are of one rank.
    """
    sources = sorted({log.source for log in logs if log.operations})
    if len(sources) != 1:
        what = (
            f"the files have steps of several programs: {', '.join(sources)[:200]}"
            if sources
            else f"{first} has no step"
        )
        raise UnreadableError(what, hint="give the files of one program: `import torchtitan SOURCE.global_rank_*`")
    found: dict[int, _Log] = {}
    for log in logs:
        if log.source != sources[0]:
            continue
        if log.rank in found:
            raise UnreadableError(
                f"{found[log.rank].path} and {log.path} are both of rank {log.rank}",
                hint="each attempt of a job writes new files: give the files of one attempt",
            )
        found[log.rank] = log
    return dict(sorted(found.items()))


def _log(path: Path) -> _Log | None:
    """The contents of a file; None if it is empty. Without a step, the operations are left out."""
    records = [record for _, record in objects_of(path, HINT)]
    if not records:
        return None
    rank = whole(records[0].get("global_rank", records[0].get("rank")), most=MAX_RANKS - 1)
    if rank is None or "log_type_name" not in records[0]:
        raise UnreadableError(f"{path} has no rank or no log_type_name in its first line", hint=HINT)
    operations = list(_spans(path, rank, records))
    in_steps = any(operation.stages == (Stage.STEP,) for operation in operations)
    return _Log(
        path=path,
        rank=rank,
        source=text(records[0].get("source")),
        host=text(records[0].get("host_name")),
        operations=operations if in_steps else [],
    )


def _spans(path: Path, rank: int, records: Sequence[Mapping[str, Any]]) -> Iterator[Operation]:
    """An operation for each pair of start and end on one thread and task. Pairs may nest. A start without an end is
    ignored: the process was killed in between."""
    begun: dict[tuple[str, str, str], list[int]] = {}
    for record in records:
        kind = text(record.get("log_type_name"))
        name = kind.removesuffix(_START).removesuffix(_END)
        if name not in STAGES or kind == name:
            continue
        at_us, step = whole(record.get("time_us"), most=LAST_NS // 1000), whole(record.get("step"), most=LAST_STEP - 1)
        if at_us is None:
            raise UnreadableError(f"{path}: {kind} has no time_us", hint=HINT)
        starts = begun.setdefault((name, str(record.get("tid"))[:80], str(record.get("task_name"))[:200]), [])
        if kind.endswith(_START):
            starts[MAX_DEPTH:] = []
            starts.append(at_us)
        elif starts and step is not None:
            start_us = starts.pop()
            yield Operation(
                places=Places(rank=rank, dp=rank, pp=0, tp=0),
                stages=(STAGES[name],),
                step=step,
                start_ns=start_us * 1000,
                duration_ns=_duration_ns(record.get("value"), at_us - start_us),
            )


def _duration_ns(value_ms: Any, between_us: int) -> int:
    """The duration in the log, which is from the monotonic clock; otherwise the time between the two lines."""
    if isinstance(value_ms, float) and 0 <= value_ms <= LAST_NS / 1e6:
        return round(value_ms * 1e6)
    return max(between_us, 0) * 1000
