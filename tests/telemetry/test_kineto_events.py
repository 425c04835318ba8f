"""All slices and flows of a profiler file are read, and damaged files are refused."""

import gzip
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import UnreadableError, UsageError
from telemetry.imports import text_input
from telemetry.imports.kineto_events import ProfileOrigin, read_events
from tests.telemetry.made_profiles import AUTOGRAD, BASE_NS, COMPUTE, HOST, Profile

ORIGIN = {"run": "made", "attempt": 0, "rank": 3, "first_step": 8, "last_step": 9, "clock_error_ns": 400}


def names(thread: int, name: str, *, process: int = 1) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "ts": 0, "args": {"name": name}}


def test_slices_have_their_threads_times_and_arguments(tmp_path: Path) -> None:
    profile = Profile(rank=2, world_size=4).host("cpu_op", "aten::mm", 10.001, 5.5, **{"Ev Idx": 7})
    profile.kernel("gemm", issued=11, at=30, dur=8)
    profile.events += [names(HOST, "thread 100 (python)"), names(COMPUTE, "stream 7 ", process=0)]
    events = read_events(profile.save(tmp_path, "rank2.json.gz"))
    assert (events.rank, events.world_size, events.host, events.origin) == (2, 4, "node-1", None)
    assert events.name == ("aten::mm", "cudaLaunchKernel", "gemm")
    assert events.category == ("cpu_op", "cuda_runtime", "kernel")
    assert [events.threads[row] for row in events.thread] == ["thread 100 (python)"] * 2 + ["stream 7"]
    assert (events.begin_ns[0] - BASE_NS, events.end_ns[0] - BASE_NS) == (10_001, 15_501)
    assert json.loads(events.args[0]) == {"Ev Idx": 7}


def test_flows_connect_the_innermost_slices_that_begin_at_their_ends(tmp_path: Path) -> None:
    profile = Profile().host("cpu_op", "outer", 10, 9).host("cpu_op", "inner", 10, 2)
    profile.host("cpu_op", "backward", 40, 5, AUTOGRAD).flow(1, 10, 40, to=AUTOGRAD)
    profile.flow(2, 10, 77, to=AUTOGRAD)  # no slice begins there
    events = read_events(profile.save(tmp_path))
    assert [(events.name[a], events.name[b]) for a, b in zip(events.source, events.target, strict=True)] == [
        ("inner", "backward")
    ]


def test_numbers_that_json_does_not_have_become_text(tmp_path: Path) -> None:
    profile = Profile().host("cpu_op", "op", 10, 9, inputs=[math.nan, math.inf, 1.5])
    assert json.loads(read_events(profile.save(tmp_path)).args[0]) == {"inputs": ["NaN", "Infinity", 1.5]}


def test_events_that_cannot_be_drawn_are_counted(tmp_path: Path) -> None:
    profile = Profile().host("cpu_op", "op", 10, 9)
    profile.events += [{"ph": "i", "name": "[memory]", "ts": 1}, {"ph": "C", "name": "power"}, "text"]
    assert read_events(profile.save(tmp_path)).num_other == 3


def test_a_profile_of_rankscope_has_its_run_steps_and_clock_error(tmp_path: Path) -> None:
    profile = Profile(told={"rankscope": ORIGIN}).host("cpu_op", "op", 10, 9)
    assert read_events(profile.save(tmp_path)).origin == ProfileOrigin(
        run_id="made", attempt=0, rank=3, first_step=8, last_step=9, clock_error_ns=400
    )


OP = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2}
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not complete JSON"),
    "cut": (json.dumps({"traceEvents": [OP]}).encode()[:-9], "not complete JSON"),
    "cut gzip": (gzip.compress(json.dumps({"traceEvents": [OP] * 99}).encode())[:-20], "is damaged"),
    "list": (b"[]", "no traceEvents"),
    "nested": (b'{"traceEvents": [{"args": ' + b"[" * 100_000, "not complete JSON"),
    "no slice": (b'{"traceEvents": [{"ph": "i"}, 3, null]}', "has no events"),
    "negative time": (json.dumps({"traceEvents": [OP | {"ts": -1}]}).encode(), "invalid times"),
    "time as text": (json.dumps({"traceEvents": [OP | {"ts": "1"}]}).encode(), "invalid times"),
    "no time": (json.dumps({"traceEvents": [OP | {"dur": math.nan}]}).encode(), "invalid times"),
    "late base": (json.dumps({"baseTimeNanoseconds": 2**70, "traceEvents": [OP]}).encode(), "invalid times"),
    "endless base": (
        json.dumps({"baseTimeNanoseconds": 10**400, "traceEvents": [OP]}).encode(),
        "no trace of the PyTorch profiler",
    ),
    "wrong origin": (json.dumps({"rankscope": 5, "traceEvents": [OP]}).encode(), "has no run"),
    "wrong rank": (json.dumps({"rankscope": ORIGIN | {"rank": True}, "traceEvents": [OP]}).encode(), "rank of the"),
}


@pytest.mark.parametrize(("content", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match=words):
        read_events(path)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_input, "MAX_BYTES", 1000)
    with pytest.raises(UnreadableError, match="longer than"):
        read_events(Profile().host("cpu_op", "op" * 1000, 1, 2).save(tmp_path, "rank0.json.gz"))


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank0.json")
    with pytest.raises(UsageError, match="Not a regular file"):
        read_events(tmp_path / "rank0.json")
