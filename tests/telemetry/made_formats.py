"""One known run in the format of each tool whose traces can be imported.

Four data-parallel ranks. In each step:

    rank 0   |load|- forward -|--- backward ---|.....all-reduce|- optimizer -|
    rank 2   |load|---- forward ----|------- backward --------|all-reduce|- optimizer -|       if it is slow
"""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RANKS = 4
STEPS = 12
FIRST_STEP = 3
BASE_NS = 1_700_000_000_000_000_000
MS = 1_000_000
STEP_NS = 250 * MS
TRANSFER_NS = 5 * MS
USUAL_MS = {"load": 4, "forward": 20, "backward": 40, "optimizer": 10}
SLOW_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An operation of one rank. ``name``: step, load, forward, backward, all-reduce or optimizer."""

    rank: int
    step: int
    name: str
    start_ns: int
    duration_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


def known_run(*, slow: float = 1.0, slow_load: float = 1.0, ranks: int = RANKS) -> list[Span]:
    """The true spans, in whole microseconds. ``slow`` and ``slow_load`` are factors of rank 2."""
    rng = random.Random(7)
    spans: list[Span] = []
    for step in range(FIRST_STEP, FIRST_STEP + STEPS):
        begin_ns = BASE_NS + step * STEP_NS
        arrivals: list[int] = []
        for rank in range(ranks):
            at_ns = begin_ns
            for name in ("load", "forward", "backward"):
                factor = 1.0 if rank != SLOW_RANK else slow_load if name == "load" else slow
                duration_ns = round(USUAL_MS[name] * MS * factor * rng.uniform(0.99, 1.01)) // 1000 * 1000
                spans.append(Span(rank=rank, step=step, name=name, start_ns=at_ns, duration_ns=duration_ns))
                at_ns += duration_ns
            arrivals.append(at_ns)
        end_ns = max(arrivals) + TRANSFER_NS
        for rank, at_ns in enumerate(arrivals):
            spans.append(Span(rank=rank, step=step, name="all-reduce", start_ns=at_ns, duration_ns=end_ns - at_ns))
            last_ns = USUAL_MS["optimizer"] * MS
            spans.append(Span(rank=rank, step=step, name="optimizer", start_ns=end_ns, duration_ns=last_ns))
            whole_ns = end_ns + last_ns - begin_ns
            spans.append(Span(rank=rank, step=step, name="step", start_ns=begin_ns, duration_ns=whole_ns))
    return spans


def of_rank(spans: Sequence[Span], rank: int) -> list[Span]:
    return [span for span in spans if span.rank == rank]


def _ranks(spans: Sequence[Span]) -> list[int]:
    return sorted({span.rank for span in spans})


# torchtitan

_TITAN = {"step": "step", "load": "fetching_batch", "optimizer": "optim"}


def write_torchtitan(folder: Path, spans: Sequence[Span]) -> None:
    for rank in _ranks(spans):
        lines = []
        for span in [*of_rank(spans, rank), *_forward_backward(of_rank(spans, rank))]:
            if (name := _TITAN.get(span.name, "fwd_bwd" if span.name == "both" else "")) == "":
                continue
            common = {
                "tid": 7,
                "rank": rank,
                "global_rank": rank,
                "source": "training",
                "host_name": f"gpu-{rank // 2}",
            }
            common |= {"step": span.step, "log_type": "event", "task_name": None}
            lines.append(
                (span.start_ns, {**common, "time_us": span.start_ns // 1000, "log_type_name": f"{name}_start"})
            )
            end = {"time_us": span.end_ns // 1000, "log_type_name": f"{name}_end", "value": span.duration_ns / 1e6}
            lines.append((span.end_ns, {**common, **end}))
        lines.append((0, {"rank": rank, "source": "training", "log_type_name": "structured_logger_started"}))
        lines.sort(key=lambda line: line[0])
        path = folder / "structured_logs" / f"training.global_rank_{rank}.20260101-000000-ABCDEF.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for _, line in lines))


def _forward_backward(spans: Sequence[Span]) -> Iterator[Span]:
    """Spans from the start of the forward to the end of the collective, as a host measures them."""
    by_step = {(span.step, span.name): span for span in spans}
    for step in {span.step for span in spans}:
        first, last = by_step[step, "forward"], by_step[step, "all-reduce"]
        yield Span(
            rank=first.rank, step=step, name="both", start_ns=first.start_ns, duration_ns=last.end_ns - first.start_ns
        )


# NDTimeline

_NAMES = {
    "load": "data-load",
    "forward": "forward-compute",
    "backward": "backward-compute",
    "all-reduce": "grads-all-reduce",
    "optimizer": "optimizer",
}


def write_ndtimeline_log(folder: Path, spans: Sequence[Span]) -> None:
    """One line for each metric and rank, as ``LocalRawNDHandler`` writes it."""
    lines = []
    for rank in _ranks(spans):
        for name, metric in _NAMES.items():
            found = [span for span in of_rank(spans, rank) if span.name == name]
            steps = range(found[0].step, found[-1].step + 1)
            info = (
                f"rank={rank}, dp_rank={rank}, ddp_rank=0, tp_rank=0, pp_rank=0, local_rank={rank}, ip='10.0.0.{rank}'"
            )
            sizes = f"dp_size={len(_ranks(spans))}, ddp_size=1, tp_size=1, pp_size=1, world_size={len(_ranks(spans))}"
            lines.append(
                f"2026-01-01 00:00:00,000 - metric_name: {metric}, elapsed: 1.0, recent_elapsed_raw_parts: "
                f"{[span.duration_ns / 1e9 for span in found]}, recent_since_start_raw_parts: "
                f"{[span.start_ns / 1e9 for span in found]}, tags: {[{'stream_key': 'x'}] * len(found)}, step_range: "
                f"{steps}, world_info: WorldInfo: TopoInfo({info}, {sizes}) "
                "TrainingInfo(role_id=0, trial_id=0, run_id=0) {}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "timeline_run0_raw.log").write_text("\n".join(lines) + "\n")


def write_ndtimeline_trace(folder: Path, spans: Sequence[Span]) -> None:
    events: list[dict[str, Any]] = [
        {
            "name": _NAMES[span.name],
            "cat": _NAMES[span.name],
            "pid": span.rank,
            "tid": span.rank * 10,
            "ph": "X",
            "ts": span.start_ns / 1e3,
            "dur": span.duration_ns / 1e3,
            "args": {"rank": span.rank, "step": span.step, "tp": 0, "pp": 0},
        }
        for span in spans
        if span.name in _NAMES
    ]
    events.append({"name": "thread_name", "pid": 0, "tid": 0, "ph": "M", "args": {"name": "rank[0] main"}})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"trace_step{FIRST_STEP}_{FIRST_STEP + STEPS - 1}").write_text(json.dumps(events))


# MegaScan

_MEGASCAN = {"forward": "forward", "backward": "backward", "all-reduce": "allreduce", "optimizer": "optimizer"}


def write_megascan(folder: Path, spans: Sequence[Span]) -> None:
    """One file for each rank, with layers inside the forward and a send of the only pipeline stage."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in _ranks(spans):
        records: list[dict[str, Any]] = []
        common = {"dp_rk": rank, "pp_rk": 0, "tp_rk": 0, "dev": 0, "g_rk": rank}
        steps = sorted({span.step for span in spans})
        for step in steps:
            begin_ns = BASE_NS + step * STEP_NS
            records.append({"name": "iteration", "ph": "B", "pad_before": 0 if step == steps[0] else 100 * MS})
            for span in of_rank(spans, rank):
                if span.step == step and span.name in _MEGASCAN:
                    begin, end = span.start_ns - begin_ns, span.end_ns - begin_ns
                    inner = ("decoder", "send-warmup") if span.name == "forward" else ()
                    names = (_MEGASCAN[span.name], *inner)
                    records += [{"name": name, "ph": "B", "rel_ts": begin, **common} for name in names]
                    records += [{"name": name, "ph": "E", "rel_ts": end, **common} for name in reversed(names)]
            end_of_step = {"rel_ts": 150 * MS, "duration_wall": 150 * MS, "duration_cuda": 150 * MS}
            records.append({"name": "iteration", "ph": "E", **end_of_step, **common})
        name = f"benchmark-data-{rank}-pipeline-0-tensor-0.json"
        (folder / name).write_text(json.dumps(records, indent=2))


def write_megascan_aggregated(folder: Path, spans: Sequence[Span]) -> None:
    events = [
        {
            "name": _MEGASCAN[span.name],
            "cname": "x",
            "ph": phase,
            "ts": at_ns // 1000 - BASE_NS // 1000,
            "pid": span.rank,
            "tid": 0,
            "args": {
                "iteration": span.step - FIRST_STEP,
                "dp_rk": span.rank,
                "pp_rk": 0,
                "tp_rk": 0,
                "dev": 0,
                "g_rk": span.rank,
            },
        }
        for span in spans
        if span.name in _MEGASCAN
        for phase, at_ns in (("B", span.start_ns), ("E", span.end_ns))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace-aggregated.json").write_text(json.dumps(events))


# NCCL Inspector


def write_nccl_inspector(folder: Path, spans: Sequence[Span], *, verbose: bool = True) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ranks = _ranks(spans)
    for rank in ranks:
        lines = []
        for number, span in enumerate(span for span in of_rank(spans, rank) if span.name == "all-reduce"):
            perf: dict[str, Any] = {
                "coll": "AllReduce",
                "coll_sn": number,
                "coll_msg_size_bytes": 65536,
                "coll_exec_time_us": span.duration_ns // 1000,
                "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": 1.5,
                "coll_busbw_gbs": 2.5,
            }
            if verbose:
                kernel = {
                    "channel_id": 0,
                    "kernel_start_ts": span.start_ns // 1000,
                    "kernel_stop_ts": span.end_ns // 1000,
                }
                perf["event_trace_ts"] = {"coll_start_ts": span.start_ns // 1000 - 50, "kernel_events": [kernel]}
            lines.append(
                {
                    "header": {"id": "0x7f8c", "comm_name": "x", "rank": rank, "n_ranks": len(ranks), "nnodes": 1},
                    "metadata": {
                        "inspector_output_format_version": "v4.0",
                        "hostname": f"gpu-{rank // 2}",
                        "pid": 100 + rank,
                        "dump_timestamp_us": span.end_ns // 1000 + 500,
                    },
                    "coll_perf": perf,
                }
            )
        path = folder / f"gpu-{rank // 2}-pid{100 + rank}.log"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


# Nsight Systems

_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER);
"""
_KERNELS = {
    "forward": "sm90_gemm",
    "backward": "sm90_gemm",
    "all-reduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "optimizer": "multi_tensor_apply_kernel",
}
_RANGES = {"step": "iteration", "backward": "backward", "optimizer": "optimizer_step"}
ISSUE_NS = 100_000


def write_nsys(folder: Path, spans: Sequence[Span]) -> None:
    """One report for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in _ranks(spans):
        _write_report(folder / f"report_rank{rank}.sqlite", of_rank(spans, rank), [rank])


def write_nsys_of_a_host(folder: Path, spans: Sequence[Span]) -> None:
    """One report with all ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_report(folder / "node0.sqlite", spans, _ranks(spans))


def _write_report(path: Path, spans: Sequence[Span], ranks: Sequence[int]) -> None:
    path.unlink(missing_ok=True)
    names = sorted({*_KERNELS.values(), "cudaLaunchKernel"})
    with sqlite3.connect(path) as database:
        database.executescript(_TABLES)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", list(enumerate(names)))
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (BASE_NS,))
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, '', 'Hostname', ?)", (f"gpu-{ranks[0] // 2}",))
        for number, span in enumerate(spans, 1):
            process = (1000 + span.rank) << 24
            begin, end = span.start_ns - BASE_NS, span.end_ns - BASE_NS
            if span.name in _KERNELS:
                name = names.index(_KERNELS[span.name])
                kernel = (begin, end, span.rank, 1, 0, 7, number, process, name, name, name)
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({_marks(11)})", kernel)
                launch = (
                    begin - ISSUE_NS,
                    begin - ISSUE_NS + 5,
                    0,
                    process | 1,
                    number,
                    names.index("cudaLaunchKernel"),
                    0,
                )
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({_marks(7)})", launch)
            if span.name in _RANGES:
                text = f"{_RANGES[span.name]} {span.step}" if span.name == "step" else _RANGES[span.name]
                marked = (begin - 2 * ISSUE_NS, end - 2 * ISSUE_NS, 59, 0, 0, 0, text, process | 1, 0, None, 0)
                database.execute(f"INSERT INTO NVTX_EVENTS VALUES ({_marks(11)})", marked)
    database.close()


def _marks(number: int) -> str:
    return ", ".join("?" * number)


# Chakra

_NODES = {
    "step": ("ProfilerStep#", 4),
    "forward": ("sm90_gemm", 4),
    "backward": ("sm90_gemm", 4),
    "all-reduce": ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 7),
    "optimizer": ("multi_tensor_apply_kernel", 4),
}
_CALLERS = {"forward": "aten::linear", "backward": "autograd::engine::evaluate_function", "optimizer": "Optimizer.step"}


def _nodes(spans: Sequence[Span]) -> Iterator[dict[str, Any]]:
    """Nodes as keywords: a caller on the host, then its operation on the device."""
    number = 1
    for span in spans:
        if span.name not in _NODES:
            continue
        name, kind = _NODES[span.name]
        timed = {"start": span.start_ns // 1000, "runtime": span.duration_ns // 1000}
        if span.name == "step":
            yield {"id": number, "name": f"{name}{span.step}", "kind": 4, "cpu": True, "deps": [], **timed}
            number += 1
            continue
        caller = _CALLERS.get(span.name, "c10d::allreduce_")
        yield {"id": number, "name": caller, "kind": 4, "cpu": True, "deps": [], "start": timed["start"], "runtime": 1}
        yield {"id": number + 1, "name": name, "kind": kind, "cpu": False, "deps": [number], **timed}
        number += 2


def write_chakra(folder: Path, spans: Sequence[Span]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in _ranks(spans):
        messages = [_field(1, b"0.0.4"), *(_message(node) for node in _nodes(of_rank(spans, rank)))]
        (folder / f"chakra.{rank}.et").write_bytes(b"".join(_number(len(message)) + message for message in messages))


def _message(node: dict[str, Any]) -> bytes:
    is_cpu = _field(1, b"is_cpu_op") + _field(27, int(node["cpu"]))
    fields = [_field(1, node["id"]), _field(2, node["name"].encode()), _field(3, node["kind"])]
    fields += [_field(4, b"".join(map(_number, node["deps"])))] if node["deps"] else []
    fields += [_field(6, node["start"]), _field(7, node["runtime"]), _field(10, is_cpu)]
    if node["kind"] == 7:
        fields.append(_field(10, _field(1, b"comm_type") + _field(9, 0)))
        fields.append(_field(10, _field(1, b"comm_size") + _field(9, 65536)))
    return b"".join(fields)


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _number(number << 3) + _number(value)
    return _number(number << 3 | 2) + _number(len(value)) + value


def _number(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def write_chakra_json(folder: Path, spans: Sequence[Span]) -> None:
    """As ``chakra_jsonizer`` writes it: JSON of protobuf, one object after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {4: "COMP_NODE", 7: "COMM_COLL_NODE"}
    for rank in _ranks(spans):
        documents: list[dict[str, Any]] = [{"version": "0.0.4"}]
        for node in _nodes(of_rank(spans, rank)):
            attributes = [{"name": "is_cpu_op", "boolVal": node["cpu"]}]
            attributes += [{"name": "comm_type", "int64Val": "0"}] if node["kind"] == 7 else []
            documents.append(
                {
                    "id": str(node["id"]),
                    "name": node["name"],
                    "type": kinds[node["kind"]],
                    "attr": attributes,
                    "ctrlDeps": [str(number) for number in node["deps"]],
                    "startTimeMicros": str(node["start"]),
                    "durationMicros": str(node["runtime"]),
                }
            )
        (folder / f"chakra.{rank}.json").write_text("".join(json.dumps(document, indent=2) for document in documents))


def write_chakra_graph(folder: Path, spans: Sequence[Span]) -> None:
    """A workload graph without start times. Each operation depends on the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in _ranks(spans):
        chain = [node for node in _nodes(of_rank(spans, rank)) if not node["cpu"]]
        nodes = [
            {
                "Id": node["id"],
                "Name": node["name"],
                "NodeType": node["kind"],
                "runtime": node["runtime"],
                "ctrlDeps": [],
                "data_deps": [before["id"]] if before else [],
                "is_cpu_op": False,
            }
            for before, node in zip([None, *chain], chain, strict=False)
        ]
        (folder / f"chakra.{rank}.json").write_text(json.dumps({"workload_graph": nodes}))


def write_chakra_linked(folder: Path, spans: Sequence[Span]) -> None:
    """As ``chakra_trace_link`` writes it: PyTorch's execution trace with times."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in _ranks(spans):
        nodes = []
        for node in _nodes(of_rank(spans, rank)):
            times = {"ts": float(node["start"]), "inclusive_dur": node["runtime"], "exclusive_dur": node["runtime"]}
            device = {} if node["cpu"] else {"cat": "kernel", "ph": "X", "stream": 7}
            common = {"id": node["id"], "name": node["name"], "ctrl_deps": (node["deps"] or [0])[0]}
            nodes.append({**common, "inputs": {"values": []}, "attrs": [], **times, **device})
        document = {"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": nodes}
        (folder / f"chakra.{rank}.json").write_text(json.dumps(document))


# OpenTelemetry

_OTLP = {"step": "megatron.train.iteration", "load": "data_loading", "forward": "megatron.microbatch.forward"}
_OTLP |= {"backward": "megatron.microbatch.backward", "all-reduce": "megatron.grad_sync.finish"}
_OTLP |= {"optimizer": "megatron.train.iteration.optimizer"}


def otlp_requests(spans: Sequence[Span], rank: int) -> Iterator[dict[str, Any]]:
    """One request for each step of a rank, as nemo-lens of Megatron-LM describes ranks. The step is stated by its own
    span, which ends last."""
    attributes: dict[str, Any] = {"service.name": "megatron-lm", "nemo.run.id": "made", "host.name": f"gpu-{rank // 2}"}
    attributes |= {"dl.rank": rank, "dl.world_size": len(_ranks(spans))}
    attributes |= {"dl.tensor_parallel.size": 1, "dl.pipeline_parallel.size": 1}
    mine = of_rank(spans, rank)
    for step in sorted({span.step for span in mine}):
        ended = sorted(
            (span for span in mine if span.step == step), key=lambda span: (span.end_ns, span.name == "step")
        )
        found = [
            {
                "traceId": f"{step + 1:032x}",
                "spanId": f"{(rank << 32) + step * 10 + number + 1:016x}",
                "name": _OTLP[span.name],
                "kind": 1,
                "startTimeUnixNano": str(span.start_ns),
                "endTimeUnixNano": str(span.end_ns),
                "attributes": _attributes({"megatron.iteration": step} if span.name == "step" else {}),
            }
            for number, span in enumerate(ended)
        ]
        resource = {"attributes": _attributes(attributes)}
        yield {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "lens"}, "spans": found}]}]}


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]


def write_otlp(folder: Path, spans: Sequence[Span]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(request) for rank in _ranks(spans) for request in otlp_requests(spans, rank)]
    (folder / "traces.jsonl").write_text("\n".join(lines) + "\n")


Writer = Callable[[Path, Sequence[Span]], None]
