"""One file of the PyTorch profiler (libkineto's Chrome trace) as columns.

    {"distributedInfo": {"rank", "world_size", "pg_config": [{"pg_name", "pg_desc", "ranks"}, ...]}, "host_name",
     "baseTimeNanoseconds",                                  added to every ts; absent in old files
     "traceEvents": [{"ph": "X", "cat", "name", "tid", "ts", "dur", "args"}, ...]}      ts, dur: microseconds

    cat               read for
    user_annotation   ProfilerStep#N, Optimizer.*, record_function ranges, gloo:*
    cpu_op            autograd functions; the work, if there is no GPU
    cuda_runtime      when a kernel was launched: the same ``args.correlation`` as the kernel's
    kernel            work on the GPU, NCCL's kernels among it

A file is parsed at once, and only its columns are kept: 190 MB with 215,000 kernels took 1.1 GB and 7.5 s of processor
time.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.errors import UnreadableError
from telemetry.imports.intervals import Ints, Ranges
from telemetry.imports.kineto_document import base_of, host_of, job_of, parsed, rank_in_name, times_of, whole_number
from telemetry.stores.queries import LAST_STEP

ZERO: Ints = np.zeros(1, dtype=np.int64)
STEP_HINT = "call profiler.step() at the end of every training step while the profiler records"
_STEP = re.compile(r"ProfilerStep#(\d+)")
_EXCHANGE = "record_param_comms"
_ANNOTATIONS = ("user_annotation",)
_OPS = ("cpu_op", "Operator")
_KERNELS = ("kernel", "Kernel")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group, as far as the file describes it."""

    desc: str = ""
    ranks: tuple[int, ...] = ()
    """Global ranks; empty if the list is missing or incomplete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels on the GPU. ``thread`` of ``ranges`` is the stream. ``args`` is kept only for NCCL kernels."""

    ranges: Ranges
    issue_ns: Ints
    """When the host launched the kernel; 0 if unknown."""
    issue_thread: Ints
    args: tuple[Mapping[str, Any], ...]
    phase: npt.NDArray[np.uint8] | None = None
    """Stage of each kernel that computes. If None, it follows from the ranges of the host around the launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """The trace of one rank."""

    path: Path
    rank: int | None
    world_size: int | None
    host: str
    groups: Mapping[str, Group]
    steps: Ranges
    step_numbers: Ints
    annotations: Ranges
    ops: Ranges
    kernels: Kernels


def read_trace(path: Path) -> TraceFile:
    """The trace in ``path``. The file may be compressed, with any name.

    Raises:
        UsageError: no such file.
        UnreadableError: the file is damaged, is not a trace of the PyTorch profiler, or has no operation.
    """
    trace = parsed(path)
    events = _Events(path=path, base_ns=base_of(trace))
    for event in trace["traceEvents"]:
        events.take(event)
    kernels = events.kernels()
    steps, numbers = _steps(events, kernels)
    info = job_of(trace)
    rank = whole_number(info.get("rank"))
    return TraceFile(
        path=path,
        rank=rank_in_name(path) if rank is None else rank,
        world_size=whole_number(info.get("world_size")),
        host=host_of(path, trace),
        groups=_groups_of_kernels(kernels) | _groups(info.get("pg_config")),
        steps=steps,
        step_numbers=numbers,
        annotations=events.ranges(events.annotations),
        ops=events.ranges(events.ops),
        kernels=kernels,
    )


_Event = tuple[str, int, int, Any]
"""Name, begin, end, thread."""


@dataclass(slots=True, kw_only=True)
class _Events:
    """Sorts events into columns."""

    path: Path
    base_ns: int
    steps: list[_Event] = field(default_factory=list)
    annotations: list[_Event] = field(default_factory=list)
    ops: list[_Event] = field(default_factory=list)
    on_gpu: list[tuple[_Event, Any, Mapping[str, Any]]] = field(default_factory=list)
    launches: dict[Any, tuple[int, int]] = field(default_factory=dict)
    exchanges: dict[Any, Mapping[str, Any]] = field(default_factory=dict)
    """``External id`` -> the host's arguments of a collective. Its kernel has the same id, but may lack arguments."""
    threads: dict[Any, int] = field(default_factory=dict)

    def take(self, event: Any) -> None:
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category = event.get("cat")
        if event.get("name") == _EXCHANGE:
            self.exchanges[_args(event).get("External id")] = _args(event)
        elif category in _ANNOTATIONS or category in _OPS:
            self._take_host(event, self.annotations if category in _ANNOTATIONS else self.ops)
        elif category in _KERNELS:
            args = _args(event)
            is_nccl = "nccl" in str(event.get("name"))[:32].lower()
            self.on_gpu.append((self._event(event), args.get("correlation"), args if is_nccl else {}))
        elif category in _LAUNCHES:
            _, begin, _, thread = self._event(event)
            self.launches[_args(event).get("correlation")] = begin, self._number(thread)

    def ranges(self, events: list[_Event]) -> Ranges:
        return Ranges(
            name=tuple(event[0] for event in events),
            begin_ns=np.array([event[1] for event in events], dtype=np.int64),
            end_ns=np.array([event[2] for event in events], dtype=np.int64),
            thread=np.array([self._number(event[3]) for event in events], dtype=np.int64),
        )

    def kernels(self) -> Kernels:
        issued = [self.launches.get(correlation, (0, -1)) for _, correlation, _ in self.on_gpu]
        return Kernels(
            ranges=self.ranges([event for event, _, _ in self.on_gpu]),
            issue_ns=np.array([at_ns for at_ns, _ in issued], dtype=np.int64),
            issue_thread=np.array([thread for _, thread in issued], dtype=np.int64),
            args=tuple({**self.exchanges.get(args.get("External id"), {}), **args} for _, _, args in self.on_gpu),
        )

    def _take_host(self, event: dict[str, Any], where: list[_Event]) -> None:
        is_step = _STEP.fullmatch(str(event.get("name")))
        (self.steps if is_step else where).append(self._event(event))

    def _event(self, event: dict[str, Any]) -> _Event:
        begin_ns, end_ns = times_of(event, self.base_ns, self.path)
        return intern(str(event.get("name"))), begin_ns, end_ns, event.get("tid")

    def _number(self, thread: Any) -> int:
        return self.threads.setdefault(str(thread), len(self.threads))


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _steps(events: _Events, kernels: Kernels) -> tuple[Ranges, Ints]:
    """The steps and their numbers. If the file has no step, one step contains everything."""
    if not events.steps:
        return one_step(events.path, kernels, events.ranges(events.annotations), events.ranges(events.ops))
    steps = events.ranges(events.steps)
    numbers = np.array([int(name.partition("#")[2]) for name in steps.name], dtype=np.int64)
    _check_steps(events.path, numbers)
    return steps, numbers


def one_step(path: Path, kernels: Kernels, *others: Ranges) -> tuple[Ranges, Ints]:
    """Step 0, from the first begin or launch to the last end.

    Raises:
        UnreadableError: there are no ranges.
    """
    known = (kernels.ranges, *others)
    begin = np.concatenate([kernels.issue_ns[kernels.issue_ns > 0], *(ranges.begin_ns for ranges in known)])
    end = np.concatenate([ranges.end_ns for ranges in known])
    if not len(end):
        raise UnreadableError(f"{path} has no operation", hint=STEP_HINT)
    whole = Ranges(name=("step",), begin_ns=begin.min(keepdims=True), end_ns=end.max(keepdims=True), thread=ZERO)
    return whole, ZERO


def _check_steps(path: Path, numbers: Ints) -> None:
    known, times = np.unique(numbers, return_counts=True)
    if times.max() > 1 or known[-1] >= LAST_STEP:
        wrong = known[times > 1][0] if times.max() > 1 else known[-1]
        raise UnreadableError(f"{path}: ProfilerStep#{wrong} is out of range or occurs twice", hint=STEP_HINT)


def _groups(config: Any) -> dict[str, Group]:
    listed = [group for group in config if isinstance(group, dict)] if isinstance(config, list) else []
    return {
        str(group.get("pg_name")): Group(desc=str(group.get("pg_desc") or ""), ranks=listed_ranks(group.get("ranks")))
        for group in listed
    }


def _groups_of_kernels(kernels: Kernels) -> dict[str, Group]:
    return {
        str(args["Process Group Name"]): Group(
            desc=str(args.get("Process Group Description") or ""), ranks=listed_ranks(args.get("Process Group Ranks"))
        )
        for args in kernels.args
        if "Process Group Name" in args
    }


def listed_ranks(ranks_text: Any) -> tuple[int, ...]:
    """Ranks from a list, or from the text of a list. Empty if it is abbreviated (``[0, 1, ..., 63]``) or invalid."""
    if isinstance(ranks_text, str):
        try:
            ranks_text = json.loads(ranks_text)
        except ValueError:
            return ()
    ranks = [whole_number(number) for number in ranks_text] if isinstance(ranks_text, list) else []
    return () if None in ranks else tuple(rank for rank in ranks if rank is not None)
