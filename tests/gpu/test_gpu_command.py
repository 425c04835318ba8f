"""The parts of the GPU checks that need no GPU: the refusal, the time limits and the report. Checks that train have
their tests in ``tests/trainer/test_gpu_checks.py``."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.deadline import until
from tests.gpu.__main__ import CHECKS, ROOT, Check, main, run
from tests.gpu.nccl_hang import what_is_wrong
from tests.gpu.nccl_timing import WARM_UP, compared, durations_of
from tests.gpu.outcome import MARK, Outcome, outcome_of, report, write_report
from tests.gpu.pytest_files import counts

STORE_PACKAGES = ("chdb", "pyarrow", "psutil", "httpx", "fastapi", "pydantic", "typer", "rich", "pynvml")
IMPORT_ALL = f"""
import importlib.util, sys
from tests.gpu.__main__ import CHECKS

installed = [check for check in CHECKS if all(map(importlib.util.find_spec, check.packages))]

class Missing:
    names = set()

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(name)

missing = Missing()
sys.meta_path.insert(0, missing)
for check in sorted(installed, key=lambda check: len(check.packages)):
    missing.names = set({STORE_PACKAGES}) - set(check.packages)
    importlib.import_module(check.module)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_command_fails_with_a_hint_and_writes_no_report_without_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "out")]) == 2
    assert "sees no CUDA device\n\nhint: run it on a machine with an NVIDIA GPU" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_make_gpu_runs_the_checks_with_the_given_interpreter_and_folder() -> None:
    words = ["make", "--dry-run", "--no-print-directory", "gpu", "OUT=/some/out", "PYTHON=/some/python"]
    told = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == "/some/python -m tests.gpu --out /some/out\n"


@pytest.mark.long
def test_each_gpu_check_imports_without_packages_that_it_does_not_name() -> None:
    subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=ROOT, check=True)


def test_time_limits_of_all_gpu_checks_sum_to_less_than_fifteen_minutes() -> None:
    assert sum(check.limit_s for check in CHECKS) < 15 * 60


def test_guide_names_each_gpu_check_with_its_time_limit() -> None:
    guide = (ROOT / "docs" / "guides" / "gpu.md").read_text()
    assert [check.name for check in CHECKS if f"| `{check.name}` | {check.limit_s} s |" not in guide] == []


def test_command_refuses_a_check_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--out", str(tmp_path), "--only", "tests", "no-such-check"])
    assert "no-such-check" in capsys.readouterr().err


def outcome(printed: str, exit_status: int | None = 0) -> Outcome:
    return outcome_of("c", printed, exit_status=exit_status, seconds=1.0, limit_s=9.0)


def test_check_passes_only_if_it_prints_passed_and_exits_with_status_0() -> None:
    said = f'noise\n{MARK}{{"status": "passed", "reason": "", "figures": {{"ratio": 1.0}}}}\n'
    assert outcome(said) == Outcome(name="c", status="passed", seconds=1.0, figures={"ratio": 1.0})
    assert outcome(said, exit_status=1).status == "failed"
    assert "boom" in outcome("boom").reason
    assert outcome("still at it", exit_status=None).reason == "not over after 9 s: still at it"


def test_hanging_check_is_killed_at_its_limit_with_its_children() -> None:
    found = run(Check(name="hangs", module="tests.gpu.made_hanging", limit_s=3), num_gpus=1)
    assert found.status == "failed"
    child = int(found.reason.rpartition("child ")[2])
    until(lambda: not runs(child), what="the end of the child")


def runs(pid: int) -> bool:
    """Whether the process exists and is not a zombie. Its parent may reap it later."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_check_that_needs_more_gpus_is_reported_as_not_run() -> None:
    found = run(Check(name="two", module="none", limit_s=1, gpus=2), num_gpus=1)
    assert (found.status, found.reason) == ("not-run", "needs 2 GPUs, here: 1")


def test_a_check_whose_packages_are_missing_is_reported_as_not_run() -> None:
    found = run(Check(name="lacks", module="none", limit_s=1, packages=("json", "no_such_package")), num_gpus=1)
    assert (found.status, found.reason) == ("not-run", "no_such_package not installed")


def test_report_fails_when_a_check_failed_but_not_when_a_check_could_not_run(tmp_path: Path) -> None:
    good = [Outcome(name="a", status="passed"), Outcome(name="b", status="not-run", reason="needs 2 GPUs, here: 1")]
    machine = {"torch": "2.13", "gpus": ["H100"]}
    written = json.loads(write_report(tmp_path / "new", report(good, machine)).read_text())
    assert (written["passed"], written["gpus"], len(written["checks"])) == (True, ["H100"], 2)
    assert not report([*good, Outcome(name="c", status="failed")], machine)["passed"]


def test_medians_of_spans_and_nccl_agree_within_5_percent_or_20_microseconds() -> None:
    assert compared([1_040_000], [1.0])["agrees"]
    assert not compared([1_060_000], [1.0])["agrees"]
    assert compared([39_000], [0.02])["agrees"], "short ones within 20 us"
    assert not compared([], [1.0])["agrees"]
    assert not compared([1000], [])["agrees"]


def test_nccl_durations_are_selected_by_name_without_the_warm_up() -> None:
    entries = [{"profiling_name": "nccl:_all_gather_base", "duration_ms": float(one)} for one in range(WARM_UP + 2)]
    entries.append({"profiling_name": "nccl:all_reduce", "duration_ms": 7.0})
    assert durations_of(entries, "allgather") == [WARM_UP, WARM_UP + 1]
    sends = [{"profiling_name": "nccl:send 0->1", "duration_ms": 1.0}] * (WARM_UP + 1)
    assert durations_of(sends, "send") == [1.0]


def test_hang_is_shown_only_by_a_rank_one_collective_behind_and_a_waiting_peer() -> None:
    assert what_is_wrong({0: (11, 10), 1: (10, 10)}) == []
    assert len(what_is_wrong({0: (11, 11), 1: (11, 11)})) == 2
    assert what_is_wrong({0: (-1, -1), 1: (-1, -1)})


def test_the_counts_of_pytest_are_read_from_its_last_line() -> None:
    assert counts("x\n3 passed, 2 skipped, 1 warning in 2.0s\n") == {"passed": 3, "skipped": 2}
    assert counts("") == {}
