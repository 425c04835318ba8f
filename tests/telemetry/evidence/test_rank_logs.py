"""Output of ranks is read from their files. Healthy lines are left out, and known faults are marked."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from telemetry.evidence.known_faults import KNOWN_FAULTS, fault_of
from telemetry.evidence.logs import KEEP_LINES, MAX_LINE, MAX_REST, READ_BYTES, JobLogs, log_files_of
from tests.each_case import each_case

FAULTS = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.": "cuda-out-of-memory",
    "RuntimeError: CUDA error: device-side assert triggered": "cuda-error",
    "host:1:2 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer": "nccl-warning",
    "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1691, unhandled": "nccl-error",
    "[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: W": "watchdog-timeout",
    "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, GPU has fallen off the bus.": "xid",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer": "gloo-connection",
    "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 24640 vs 16448": "collective-mismatch",
    "a:1:2 [0] net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 collective mismatch error, local": "collective-mismatch",
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running": "collective-mismatch",
    "INFO enabling checks of collective mismatch": "",
    "Fatal Python error: Segmentation fault": "segfault",
    "Traceback (most recent call last):": "python-traceback",
    "[rank1]: ValueError: wrong shape": "python-exception",
    "OSError: [Errno 28] No space left on device": "disk-full",
    "step 12 loss 3.25, 1200 tokens a second, 0 errors": "",
    "saved without an error: yes": "",
}


@each_case("line", FAULTS)
def test_known_fault_is_recognized_by_its_log_line(line: str) -> None:
    assert fault_of(line) == FAULTS[line]


def test_every_fault_names_its_source() -> None:
    for fault in KNOWN_FAULTS:
        assert re.fullmatch(r"https://\S+|[\w/.]+\.(cpp|cc|h)", fault.source), fault


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def printing_into(stack: ExitStack, stdout: Path, stderr: Path | None = None) -> int:
    """The pid of a process whose output goes into files."""
    files = [stack.enter_context(path.open("ab")) for path in (stdout, stderr or stdout)]
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=files[0], stderr=files[1]
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdin is not None
    stack.callback(process.stdin.close)
    return process.pid


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(line + "\n" for line in lines)


def texts_and_faults(logs: JobLogs, rank: int) -> list[tuple[str, str]]:
    return [(line["text"], line["fault"]) for line in json.loads(logs.body(rank) or "[]")]


@pytest.fixture
def job(tmp_path: Path, stack: ExitStack) -> tuple[JobLogs, list[Path]]:
    """Four ranks, each with a file of its own."""
    logs, paths = JobLogs(), [tmp_path / f"rank-{rank}.log" for rank in range(4)]
    for rank, path in enumerate(paths):
        logs.follow(rank, printing_into(stack, path))
    return logs, paths


def test_lines_printed_in_healthy_steps_are_left_out(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    for step in range(4):
        for path in paths:
            write(path, f"step {step} done in 0x{step:x}")
        write(paths[0], f"loss {step}.5")
        logs.read_on()
        logs.step_went_by()
    write(paths[0], "step 4 done in 0x4", "loss 4.5", "waiting for data")
    logs.read_on()
    assert texts_and_faults(logs, 0) == [("waiting for data", "")]
    assert texts_and_faults(logs, 1) == []


def test_fault_is_reported_even_if_all_ranks_print_it(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    before_ns = time.time_ns()
    for path in paths:
        write(path, "RuntimeError: Connection closed by peer")
    logs.read_on()
    logs.step_went_by()
    for rank in range(4):
        assert texts_and_faults(logs, rank) == [("RuntimeError: Connection closed by peer", "gloo-connection")]
    (line,) = json.loads(logs.body(2) or "")
    assert before_ns - 10**8 < line["at_ns"] <= time.time_ns()


def test_incomplete_line_is_reported_only_when_it_is_complete(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    paths[0].write_text("one and ")
    logs.read_on()
    assert texts_and_faults(logs, 0) == []
    with paths[0].open("a") as file:
        file.write("a half\n")
    logs.read_on()
    assert texts_and_faults(logs, 0) == [("one and a half", "")]


def test_carriage_return_of_a_progress_bar_ends_a_line(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    paths[0].write_bytes(b"loading\r\nready\r  0%\r 50%")
    logs.read_on()
    assert texts_and_faults(logs, 0) == [("loading", ""), ("ready", ""), ("  0%", "")]


def test_very_long_line_is_truncated(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    for _ in range(20):
        with paths[0].open("a") as file:
            file.write("ü" * MAX_LINE)
        logs.read_on()
    (file_read,) = logs._ranks[0].files
    assert len(file_read._rest) == MAX_REST
    write(paths[0], " its end", "the next")
    logs.read_on()
    assert texts_and_faults(logs, 0) == [("ü" * MAX_LINE, ""), ("the next", "")]


def test_last_lines_are_kept_if_a_rank_prints_too_much(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    write(paths[0], *("x" * 90 + f" {number}" for number in range(READ_BYTES // 40)), "the last")
    logs.read_on()
    lines = texts_and_faults(logs, 0)
    assert len(lines) == KEEP_LINES
    assert lines[-1] == ("the last", "")


def test_truncated_log_file_is_read_from_its_start(job: tuple[JobLogs, list[Path]]) -> None:
    logs, paths = job
    write(paths[0], "a long line before it is emptied")
    logs.read_on()
    paths[0].write_text("short\n")
    logs.read_on()
    assert texts_and_faults(logs, 0)[-1] == ("short", "")


def test_output_of_an_earlier_attempt_in_the_same_file_is_skipped(tmp_path: Path, stack: ExitStack) -> None:
    path = tmp_path / "log"
    write(path, "Traceback (most recent call last):")
    offset = path.stat().st_size
    logs = JobLogs()
    logs.follow(0, printing_into(stack, path), f"{offset} {offset}")
    write(path, "hello")
    logs.read_on()
    assert texts_and_faults(logs, 0) == [("hello", "")]


def test_stdout_and_stderr_are_distinguished_if_they_are_two_files(tmp_path: Path, stack: ExitStack) -> None:
    logs = JobLogs()
    logs.follow(0, printing_into(stack, tmp_path / "out", tmp_path / "err"))
    write(tmp_path / "out", "to out")
    write(tmp_path / "err", "to err")
    logs.read_on()
    lines = json.loads(logs.body(0) or "")
    assert {line["text"]: line["stream"] for line in lines} == {"to out": "stdout", "to err": "stderr"}


def test_ranks_that_share_a_file_are_distinguished_by_the_rank_prefix_of_torch(
    tmp_path: Path, stack: ExitStack
) -> None:
    logs = JobLogs()
    for rank in range(2):
        logs.follow(rank, printing_into(stack, tmp_path / "all"))
    write(tmp_path / "all", "whose is this", "[rank1]: ValueError: mine", "[rank7]: of another host")
    logs.read_on()
    assert texts_and_faults(logs, 0) == []
    assert texts_and_faults(logs, 1) == [("[rank1]: ValueError: mine", "python-exception")]


def test_pipes_and_ended_processes_have_no_log_files() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=reading, stdout=writing, stderr=writing)
    assert log_files_of(process.pid) == []
    process.kill()
    process.wait()
    assert log_files_of(process.pid) == []
    os.close(reading)
    os.close(writing)
