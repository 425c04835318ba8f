"""Checks do not use what a job uses: a host on which ranks record, or a GPU on which processes compute."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagnose.nodecheck import torch_suite
from diagnose.nodecheck.checks.device import DEVICE_MEMORY, wanted_bytes
from diagnose.nodecheck.child_processes import Outcome
from diagnose.nodecheck.devices import GpuUse, Use, use_of_gpu
from diagnose.nodecheck.examiner import describe_ranks, recording_ranks, spools
from diagnose.nodecheck.node import NodeChecks, check_node
from diagnose.nodecheck.result import CheckResult, Task
from telemetry.errors import UsageError
from tests.each_case import each_case
from tests.telemetry.recording import session

GIB = 1 << 30
FREE = GpuUse(device="cuda:0", use=Use.FREE)
TAKEN = GpuUse(device="cuda:1", use=Use.TAKEN, why="process 4711 computes on it")
MAYBE = GpuUse(device="cuda:2", use=Use.UNKNOWN, why="40% of its memory is in use by an unknown process")


class RefusedError(Exception):
    """The error that the library raises."""


@dataclass(slots=True)
class MadeNvml:
    """A library that knows one GPU."""

    pids: tuple[int, ...] = ()
    mps_pids: tuple[int, ...] = ()
    used_share: float = 0.01
    refuses: bool = False
    inits: int = 0
    NVMLError = RefusedError

    def nvmlInit(self) -> None:
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.inits -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-aa-bb" or self.refuses:
            raise RefusedError("Not Found")
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.mps_pids]

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(used=int(self.used_share * 80 * GIB), total=80 * GIB)


@each_case(
    ("library", "use"),
    [
        (MadeNvml(), Use.FREE),
        (MadeNvml(pids=(os.getpid(),)), Use.FREE),
        (MadeNvml(pids=(4711,), used_share=0.9), Use.TAKEN),
        (MadeNvml(mps_pids=(4711,)), Use.TAKEN),
        (MadeNvml(used_share=0.4), Use.UNKNOWN),
        (MadeNvml(refuses=True), Use.UNKNOWN),
        (None, Use.UNKNOWN),
    ],
)
def test_use_of_a_gpu_follows_from_its_processes_and_memory(library: MadeNvml | None, use: Use) -> None:
    assert use_of_gpu("cuda:0", "aa-bb", library).use is use
    assert library is None or library.inits == 0


def planned(uses: list[GpuUse], monkeypatch: pytest.MonkeyPatch, checks: NodeChecks) -> tuple[list[Task], list[object]]:
    """The planned tasks and the reported results, on a machine with these GPUs."""
    answer = [Outcome(value=uses, error="", seconds=0.0)]
    monkeypatch.setattr(torch_suite, "run_bounded", lambda calls, deadline_s: answer)
    told: list[object] = []
    return [task for tasks in torch_suite.torch_rounds(checks, told.append) for task in tasks], told


def test_gpu_in_use_by_a_process_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, told = planned([FREE, TAKEN], monkeypatch, NodeChecks())
    assert not [task for task in tasks if "cuda:1" in task.subject]
    assert {task.check for task in tasks if "cuda:0" in task.subject} == {"gemm", "device-memory", "device-copies"}
    reasons = [one.detail for one in told if isinstance(one, CheckResult) and one.subject == "cuda:1"]
    assert reasons == ["process 4711 computes on it: drain it first, then check it"]


def test_no_check_is_planned_when_every_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned([TAKEN], monkeypatch, NodeChecks())[0] == []


def test_gpu_in_use_is_checked_with_the_option_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, _ = planned([TAKEN], monkeypatch, NodeChecks(beside_others=True))
    assert {task.subject for task in tasks} >= {"cuda:1"}


def test_memory_check_uses_most_of_the_memory_only_on_a_free_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, _ = planned([FREE, MAYBE], monkeypatch, NodeChecks())
    alone = {task.subject: task.call.keywords["alone"] for task in tasks if task.check == DEVICE_MEMORY}  # type: ignore[attr-defined]
    assert alone == {"cuda:0": True, "cuda:2": False}
    assert wanted_bytes(80 * GIB, alone=True) == 64 * GIB
    assert wanted_bytes(80 * GIB, alone=False) == 2 * GIB
    assert wanted_bytes(GIB, alone=False) <= 0.05 * GIB


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(tmp_path))
    return tmp_path


def test_host_with_a_recording_rank_is_not_checked(spool: Path) -> None:
    with session(spool), pytest.raises(UsageError, match="rank 0 of run test is recording on this host") as refused:
        list(check_node(NodeChecks()))
    assert "drain this host first" in refused.value.hint


def test_rank_that_stopped_recording_is_not_listed_as_recording(spool: Path) -> None:
    with session(spool):
        assert len(recording_ranks(spools())) == 1
    assert recording_ranks(spools()) == []


def test_dead_rank_is_not_listed_as_recording(spool: Path) -> None:
    dies = "import os, telemetry; telemetry.start('test', rank=0, agent=False); os._exit(1)"
    subprocess.run([sys.executable, "-c", dies], check=False)
    assert list(spool.glob("test/0/rank-*"))
    assert recording_ranks(spools()) == []


@pytest.mark.parametrize(("state", "later_s", "found"), [("S", 0, 1), ("T", 0, 1), ("Z", 0, 0), ("S", 60, 0)])
def test_process_counts_as_the_rank_only_if_alive_and_not_started_after_the_recording(
    spool: Path, tmp_path: Path, state: str, later_s: int, found: int
) -> None:
    proc = tmp_path / "proc"
    (proc / str(os.getpid())).mkdir(parents=True)
    ticks = os.sysconf("SC_CLK_TCK") * later_s
    (proc / str(os.getpid()) / "stat").write_text(f"1 (a) b) {state} {'0 ' * 18}{ticks} 0\n")
    (proc / "stat").write_text(f"cpu 1 2\nbtime {int(time.time())}\n")
    with session(spool):
        assert len(recording_ranks([spool], proc)) == found


def test_recording_ranks_are_described_in_one_sentence(spool: Path) -> None:
    with session(spool):
        (rank,) = recording_ranks(spools())
    assert (
        describe_ranks([rank, rank]) == f"2 ranks of run test are recording on this host (pid {os.getpid()} and others)"
    )


def test_invalid_rank_folder_and_missing_spool_are_ignored(spool: Path) -> None:
    (spool / "run" / "0" / "rank-0").mkdir(parents=True)
    (spool / "run" / "0" / "rank-0" / "meta.json").write_text("{")
    assert recording_ranks([spool, spool / "nowhere"]) == []
