"""Writes a trace as Chrome's JSON, which Perfetto, chrome://tracing and most tools can open.

    {"traceEvents":[{"ph":"M",...},          names of processes and threads
    {"ph":"X","ts":1.5,"dur":3.25,...},      slices: microseconds since the trace's base
    {"ph":"s",...},{"ph":"f",...},           begin and end of an arrow
    {"ph":"i",...},{"ph":"C",...}],          marks, samples
    "displayTimeUnit":"ns","otherData":{...}}

Format: the Trace Event Format of the Chromium project. Slices are written before their arrows, because readers keep the
order of the file for events with equal times.

Times in Chrome's JSON are microseconds. They are written so that every reader gets the exact nanosecond:

``ts`` is a number of microseconds, which readers store as a double. Some readers round it to nanoseconds. Others, such
as Perfetto, multiply it by 1000 and truncate, and parse its digits with an error in the last place. They convert 1.001
to 1000 ns, so that a slice overlaps the one before. In such a case, the second next larger double is written.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Ints
from diagnose.trace.drawing import (
    ArrowEnds,
    Instant,
    Process,
    ProfileDrawing,
    RankDrawing,
    RunDrawing,
    category_of,
    name_of,
    words_of,
)

EVENTS_AT_ONCE = 50_000
"""Number of events that are in memory as text."""


def microseconds(at_ns: Ints) -> list[float]:
    """``at_ns`` (at least 0) in microseconds. Exact up to six days; the error is at most 2 ns up to a hundred days."""
    nearest = at_ns / 1000.0
    by_digits = at_ns // 1000 + (at_ns % 1000) / 1000.0
    cut = (_cut_off(nearest) != at_ns) | (_cut_off(by_digits) != at_ns)
    above = np.nextafter(np.nextafter(nearest, np.inf), np.inf)
    exact: list[float] = np.where(cut, above, nearest).tolist()
    return exact


def _cut_off(us: npt.NDArray[np.float64]) -> Ints:
    return np.asarray(us * 1000.0, dtype=np.int64)


class JsonTrace:
    """Writes Chrome's JSON.

    Args:
        about: description of the trace. Its time is the earliest; all times are written relative to it.
    """

    def __init__(self, file: BinaryIO, about: Instant) -> None:
        self._file, self._base_ns, self._about = file, about.at_ns, about.words
        self._between = b'{"traceEvents":[\n'

    def add_run(self, run: RunDrawing) -> None:
        """Write the data that belongs to no rank."""
        pid = run.process.pid
        self._write(_text(one) for one in _process(run.process))
        self._write(self._instants(pid, (run.about, *run.instants)))
        for one in run.counters:
            head = _text({"ph": "C", "pid": pid, "tid": pid, "name": one.metric})[:-1]
            values = zip(self._microseconds(one.at_ns), one.value.tolist(), strict=True)
            self._write(f'{head},"ts":{at!r},"args":{{"value":{value!r}}}}}' for at, value in values)

    def add_rank(self, rank: RankDrawing) -> None:
        """Write a rank."""
        pid = rank.process.pid
        self._write(_text(one) for one in _process(rank.process))
        self._write(
            _text(one) for thread in rank.threads for one in _thread(pid, thread.tid, thread.name, thread.order)
        )
        self._write(self._slices(rank))
        self._write_arrows(pid, rank)
        self._write(self._instants(pid, rank.marks))

    def add_profile(self, profile: ProfileDrawing) -> None:
        """Write a Kineto trace."""
        pid = profile.pid
        self._write(
            _text(one) for thread in profile.threads for one in _thread(pid, thread.tid, thread.name, thread.order)
        )
        self._write(self._profiled_slices(profile))
        self._write_arrows(pid, profile)
        self._write(self._instants(pid, (profile.about,)))

    def end(self) -> None:
        """Write the end of the trace."""
        about = json.dumps({**self._about, "first stamp, ns since 1970": str(self._base_ns)})
        self._file.write(f'\n],\n"displayTimeUnit":"ns","otherData":{about}}}\n'.encode())

    def _write(self, events: Iterable[str]) -> None:
        events = iter(events)
        while text := ",\n".join(islice(events, EVENTS_AT_ONCE)):
            self._file.write(self._between + text.encode())
            self._between = b",\n"

    def _microseconds(self, at_ns: Ints) -> list[float]:
        return microseconds(at_ns - self._base_ns)

    def _slices(self, rank: RankDrawing) -> Iterator[str]:
        slices = rank.slices
        heads = _heads(rank)
        stamps = self._microseconds(slices.start_ns), microseconds(slices.duration_ns)
        rows = zip(rank.thread.tolist(), slices.stage.tolist(), *stamps, _args(rank), strict=True)
        return (
            f'{heads[thread, stage]}"ts":{start!r},"dur":{lasted!r},"args":{{{args}}}}}'
            for thread, stage, start, lasted, args in rows
        )

    def _profiled_slices(self, profile: ProfileDrawing) -> Iterator[str]:
        heads = [_text({"ph": "X", "pid": profile.pid, "tid": thread.tid})[:-1] for thread in profile.threads]
        stamps = self._microseconds(profile.start_ns), microseconds(profile.end_ns - profile.start_ns)
        rows = zip(profile.thread.tolist(), *stamps, profile.name, profile.category, profile.args, strict=True)
        return (
            f'{heads[thread]},"ts":{start!r},"dur":{lasted!r},'
            f'"name":{json.dumps(name)},"cat":{json.dumps(category)},"args":{args}}}'
            for thread, start, lasted, name, category, args in rows
        )

    def _write_arrows(self, pid: int, drawing: RankDrawing | ProfileDrawing) -> None:
        tids = np.array([thread.tid for thread in drawing.threads])[drawing.thread]
        self._write(self._arrow_ends(pid, tids, drawing.leaving, '"ph":"s"'))
        self._write(self._arrow_ends(pid, tids, drawing.arriving, '"ph":"f","bp":"e"'))

    def _arrow_ends(self, pid: int, tids: Ints, ends: ArrowEnds, phase: str) -> Iterator[str]:
        rows = zip(tids[ends.row].tolist(), ends.number.tolist(), self._microseconds(ends.at_ns), strict=True)
        head = f'{{{phase},"name":"meets","cat":"arrow","pid":{pid}'
        return (f'{head},"tid":{tid},"id":{number},"ts":{at!r}}}' for tid, number, at in rows)

    def _instants(self, pid: int, instants: tuple[Instant, ...]) -> Iterator[str]:
        stamps = self._microseconds(np.array([one.at_ns for one in instants], dtype=np.int64))
        for one, at in zip(instants, stamps, strict=True):
            event = {"ph": "i", "s": "p", "pid": pid, "tid": pid, "cat": "mark", "name": one.name, "ts": at}
            yield _text(event | {"args": dict(one.words)})


def _text(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))


def _metadata(pid: int, tid: int, name: str, args: dict[str, str | int]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}


def _process(process: Process) -> Iterator[dict[str, Any]]:
    yield _metadata(process.pid, process.pid, "process_name", {"name": process.name})
    yield _metadata(process.pid, process.pid, "process_sort_index", {"sort_index": process.order})
    if process.note:
        yield _metadata(process.pid, process.pid, "process_labels", {"labels": process.note})


def _thread(pid: int, tid: int, name: str, order: int) -> Iterator[dict[str, Any]]:
    yield _metadata(pid, tid, "thread_name", {"name": name})
    yield _metadata(pid, tid, "thread_sort_index", {"sort_index": order})


def _heads(rank: RankDrawing) -> dict[tuple[int, int], str]:
    """(thread, stage) -> the first part of the JSON of its slices."""
    heads = {}
    for thread, stage in {*zip(rank.thread.tolist(), rank.slices.stage.tolist(), strict=True)}:
        event = {"ph": "X", "pid": rank.process.pid, "tid": rank.threads[thread].tid}
        heads[thread, stage] = _text(event | {"name": name_of(stage), "cat": category_of(stage)})[:-1] + ","
    return heads


def _args(rank: RankDrawing) -> list[str]:
    """The JSON of the values of each slice, without braces."""
    columns = [
        [f',"{name}":{value}' if there else "" for value, there in zip(values.tolist(), known.tolist(), strict=True)]
        for name, values, known in words_of(rank)
        if known.any()
    ]
    return ["".join(parts)[1:] for parts in zip(*columns, strict=True)]
