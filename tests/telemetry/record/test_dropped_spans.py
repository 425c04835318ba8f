"""Dropped spans of threads, asyncio tasks and forked processes are counted, marked and reported once."""

from pathlib import Path

import pytest

from telemetry.records import SPANS_DROPPED
from tests.scenarios.command import run_code
from tests.telemetry.recording import Recorded, recorded

THREAD = """
import threading
def load(entered, leave):
    with telemetry.span("data-load"):
        entered.set()
        leave.wait()
for _ in range({count}):
    entered, leave = threading.Event(), threading.Event()
    with telemetry.span("evaluation"):
        thread = threading.Thread(target=load, args=(entered, leave))
        thread.start()
        entered.wait()
    leave.set()
    thread.join()
"""
TASKS = """
import asyncio
async def work(first, second):
    with telemetry.span("evaluation"):
        first.set()
        await second.wait()
async def main():
    for _ in range({count}):
        a, b, c = asyncio.Event(), asyncio.Event(), asyncio.Event()
        one = asyncio.create_task(work(a, b))
        await a.wait()
        two = asyncio.create_task(work(b, c))
        await one
        c.set()
        await two
asyncio.run(main())
"""
WORKERS = """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return {count}
    def __getitem__(self, index):
        with telemetry.span("data-load"):
            return torch.tensor(index)
for epoch in range(2):
    for batch in torch.utils.data.DataLoader(Rows(), num_workers=2, multiprocessing_context="fork"):
        with telemetry.step(epoch):
            pass
"""


def run(tmp_path: Path, body: str) -> tuple[list[str], Recorded]:
    """The lines of rankscope, and what was recorded."""
    start = f"import telemetry\nsession = telemetry.start('test', spool={str(tmp_path)!r}, agent=False)\n"
    script = f"{start}{body}\ntelemetry.stop()\nprint(session.stats().dropped)"
    done = run_code(script)
    assert done.status == 0, done.out
    found = recorded(tmp_path)
    *lines, dropped = done.out.splitlines()
    assert int(dropped) == num_marked(found) == found.reader.live().dropped
    return [line for line in lines if line.startswith("rankscope: ")], found


def num_marked(found: Recorded) -> int:
    return sum(int(text.split()[0]) for name, text in found.marks if name == SPANS_DROPPED)


@pytest.mark.parametrize(
    ("body", "stage"), [(THREAD, "data-load"), (TASKS, "evaluation")], ids=["a thread", "asyncio tasks"]
)
def test_dropped_overlapping_spans_are_counted_and_reported_once(tmp_path: Path, body: str, stage: str) -> None:
    (line,), found = run(tmp_path, body.format(count=100))
    assert line.startswith(f"rankscope: a span of {stage} was dropped: ")
    assert "rankscope.record_span(" in line
    assert num_marked(found) == 100
    assert len([name for name, _ in found.marks if name == SPANS_DROPPED]) < 10
    assert len(found.stages) == 100


def test_dropped_spans_of_data_loader_workers_are_counted_and_reported_once_per_job(tmp_path: Path) -> None:
    (line,), found = run(tmp_path, WORKERS.format(count=30))
    assert line.startswith("rankscope: a span of data-load was dropped: a forked process, such as a DataLoader worker")
    assert num_marked(found) == 60
    assert "data-load" not in found.stages


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("for _ in range(3):\n  with telemetry.span('load\\x1b[31m'):\n    pass", "no such stage"),
        ("for _ in range(3):\n  with telemetry.step('one'):\n    pass", "is not an integer"),
        ("telemetry.record_span('no', 1, 1)", "no such stage"),
        (
            "import contextlib\nwith contextlib.ExitStack() as stack:\n"
            "  for _ in range(19):\n    stack.enter_context(telemetry.span('gc'))",
            "were open at once",
        ),
    ],
    ids=["an unknown stage", "a step without a number", "an unknown stage of record_span", "too deep"],
)
def test_span_that_cannot_be_recorded_is_reported_once_with_its_reason(tmp_path: Path, body: str, words: str) -> None:
    (line,), _ = run(tmp_path, body)
    assert words in line
    assert "\x1b" not in line


def test_nested_spans_are_not_reported_as_dropped(tmp_path: Path) -> None:
    body = "with telemetry.step(1), telemetry.span('data-load'):\n  pass"
    assert run(tmp_path, body)[0] == []


def test_full_stderr_pipe_does_not_block_training(tmp_path: Path) -> None:
    """Nothing reads the pipe. The line is lost, but the dropped spans are still counted."""
    fill = """
import os
reading, writing = os.pipe()
os.dup2(writing, 2)
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 4096)
except BlockingIOError:
    os.set_blocking(2, True)
"""
    lines, found = run(tmp_path, fill + THREAD.format(count=3))
    assert lines == []
    assert num_marked(found) == 3
