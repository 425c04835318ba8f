"""All slices and flows of a PyTorch profiler file as columns, to draw them in another trace.

in the file                               becomes
ph X                                      a slice of a thread
ph s and f with the same cat and id       a flow from the slice that begins at s to the slice that begins at f
ph M, thread_name                         the name of a thread: a host thread, or a stream of a GPU
rankscope                                 facts that rankscope added to a profile (``telemetry/profile_file.py``)
ph X of the profiler itself, ph i, C ...  counted only
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from telemetry.errors import UnreadableError
from telemetry.imports.intervals import Ints
from telemetry.imports.kineto_document import (
    FORMAT_HINT,
    base_of,
    host_of,
    job_of,
    parsed,
    rank_in_name,
    times_of,
    whole_number,
)
from telemetry.imports.text_input import text
from telemetry.stores.queries import LAST_STEP

MAX_NAME = 1024
"""Characters of a name. Kernels that are made from templates have long ones."""
_OF_PROFILER = ("Trace",)
"""Category of the slice that spans the whole recording."""
_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOrigin:
    """The facts that rankscope wrote into the file of a profile."""

    run_id: str
    attempt: int
    rank: int
    first_step: int
    last_step: int
    clock_error_ns: int
    """Largest difference of the times from those of the rank's spans, without the error of Kineto's conversion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoEvents:
    """The slices and flows of a file, in the order of the file. Times are on the clock of the host."""

    path: Path
    rank: int | None
    world_size: int | None
    host: str
    """Empty if unknown."""
    origin: ProfileOrigin | None
    """None if the file was not made by `rankscope profile`."""
    threads: tuple[str, ...]
    """Names of the threads."""
    thread: Ints
    """Index of the thread of each slice."""
    begin_ns: Ints
    end_ns: Ints
    name: tuple[str, ...]
    category: tuple[str, ...]
    args: tuple[str, ...]
    """A JSON object as text. It has no NaN."""
    source: Ints
    """Row of the slice that a flow leaves, [flows]."""
    target: Ints
    """Row of the slice at which a flow arrives, [flows]."""
    num_other: int
    """Number of events that were left out."""

    def __len__(self) -> int:
        return len(self.name)


def read_events(path: Path, max_bytes: int | None = None) -> KinetoEvents:
    """The slices and flows in ``path``. The file may be compressed, with any name.

    Args:
        max_bytes: limit of its size, unpacked. If None, the limit of imports is used.

    Raises:
        UsageError: no such file.
        UnreadableError: the file is damaged, is not a trace of the PyTorch profiler, or has no slice.
    """
    try:
        return _events_of(path, parsed(path, max_bytes))
    except (OverflowError, TypeError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error


def _events_of(path: Path, trace: dict[str, Any]) -> KinetoEvents:
    sorter = _Sorter(path=path, base_ns=base_of(trace))
    for event in trace["traceEvents"]:
        sorter.take(event)
    if not sorter.names:
        raise UnreadableError(f"{path} has no events", hint=FORMAT_HINT)
    info, origin = job_of(trace), _origin(path, trace.get("rankscope"))
    rank = whole_number(info.get("rank"))
    source, target = sorter.flows()
    return KinetoEvents(
        path=path,
        rank=origin.rank if origin else rank_in_name(path) if rank is None else rank,
        world_size=whole_number(info.get("world_size")),
        host=text(host_of(path, trace)),
        origin=origin,
        threads=tuple(sorter.thread_names()),
        thread=np.array(sorter.thread, dtype=np.int64),
        begin_ns=np.array(sorter.begin_ns, dtype=np.int64),
        end_ns=np.array(sorter.end_ns, dtype=np.int64),
        name=tuple(sorter.names),
        category=tuple(sorter.categories),
        args=tuple(sorter.args),
        source=source,
        target=target,
        num_other=sorter.num_other,
    )


@dataclass(slots=True, kw_only=True)
class _Sorter:
    """Sorts events into columns. A thread is identified by its process and its number."""

    path: Path
    base_ns: int
    threads: dict[_Key, int] = field(default_factory=dict)
    known_names: dict[_Key, str] = field(default_factory=dict)
    thread: list[int] = field(default_factory=list)
    begin_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    categories: list[str] = field(default_factory=list)
    args: list[str] = field(default_factory=list)
    leaving: dict[_Key, _Key] = field(default_factory=dict)
    """Category and id of a flow -> thread and time."""
    arriving: list[tuple[_Key, _Key]] = field(default_factory=list)
    num_other: int = 0

    def take(self, event: Any) -> None:
        phase = event.get("ph") if isinstance(event, dict) else None
        if phase == "X" and event.get("cat") not in _OF_PROFILER:
            self._take_slice(event)
        elif phase in ("s", "f"):
            flow = (str(event.get("cat")), str(event.get("id")))
            at = (_thread_of(event), times_of(event, self.base_ns, self.path)[0])
            if phase == "s":
                self.leaving[flow] = at
            else:
                self.arriving.append((flow, at))
        elif phase != "M":
            self.num_other += 1
        elif event.get("name") == "thread_name":
            self.known_names[_thread_of(event)] = text(_args(event).get("name")).strip()

    def _take_slice(self, event: dict[str, Any]) -> None:
        begin_ns, end_ns = times_of(event, self.base_ns, self.path)
        self.thread.append(self.threads.setdefault(_thread_of(event), len(self.threads)))
        self.begin_ns.append(begin_ns)
        self.end_ns.append(end_ns)
        self.names.append(intern(text(event.get("name"), most=MAX_NAME) or "unnamed"))
        self.categories.append(intern(text(event.get("cat")) or "unknown"))
        self.args.append(_json(_args(event)))

    def thread_names(self) -> Iterator[str]:
        for pid, tid in self.threads:
            yield self.known_names.get((pid, tid)) or f"thread {tid[:40]}"

    def flows(self) -> tuple[Ints, Ints]:
        """Rows of the two slices of each flow. A flow is left out unless a slice begins at each of its two times."""
        wanted = {*self.leaving.values(), *(at for _, at in self.arriving)}
        thread_keys = list(self.threads)
        row_at: dict[_Key, int] = {}
        for row, (thread, begin_ns) in enumerate(zip(self.thread, self.begin_ns, strict=True)):
            at = (thread_keys[thread], begin_ns)
            if at in wanted and (at not in row_at or self.end_ns[row] <= self.end_ns[row_at[at]]):
                row_at[at] = row  # viewers choose the innermost
        pairs = [
            (row_at[self.leaving[flow]], row_at[at])
            for flow, at in self.arriving
            if at in row_at and self.leaving.get(flow) in row_at
        ]
        source, target = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return source, target


def _thread_of(event: dict[str, Any]) -> _Key:
    return str(event.get("pid")), str(event.get("tid"))


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _json(args: dict[str, Any]) -> str:
    """``args`` as JSON. NaN and infinity become text, because JSON does not have them."""
    try:
        return json.dumps(args, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(args), parse_constant=str), separators=(",", ":"))


def _origin(path: Path, about: Any) -> ProfileOrigin | None:
    """The facts that ``about_file`` of ``telemetry/profile_file.py`` wrote; None if there are none.

    Raises:
        UnreadableError: a fact is invalid.
    """
    if about is None:
        return None
    if not isinstance(about, dict) or not isinstance(about.get("run"), str):
        raise _unreadable(path, "the object `rankscope` has no run")
    return ProfileOrigin(
        run_id=about["run"],
        attempt=_number(path, about, "attempt", least=0),
        rank=_number(path, about, "rank", least=0),
        first_step=_number(path, about, "first_step", least=0),
        last_step=_number(path, about, "last_step", least=-1),
        clock_error_ns=_number(path, about, "clock_error_ns", least=0),
    )


def _number(path: Path, about: Mapping[str, Any], name: str, *, least: int) -> int:
    value = about.get(name)
    most = 2**62 if name.endswith("_ns") else LAST_STEP
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _unreadable(path, f"{name} of the object `rankscope` is {str(value)[:40]}")
    return value


def _unreadable(path: Path, reason: str) -> UnreadableError:
    return UnreadableError(
        f"{path} is no trace of the PyTorch profiler: {reason[:200]}", hint="record it again with torch.profiler"
    )
