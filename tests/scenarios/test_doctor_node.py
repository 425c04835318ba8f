"""`rankscope doctor --node`: hung checks, missing parts, signals, and wrong options."""

import json
import mmap
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import typer

from tests.deadline import until
from tests.scenarios.command import Answer, rankscope
from tests.telemetry.recording import session
from tests.trainer.jobs import alive, children
from ui.cli.commands.doctor import doctor
from ui.cli.main import main

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "node-checks.md"
OF_OTHERS = {"--run", "--store", "--attempt", "--spool", "--help"}
"""Options of `rankscope doctor` that are not about checks."""
NEEDS_TORCH = {"gemm", "device-memory", "device-copies", "all-to-all", "neighbours"}
EVERYWHERE = {"host-memory", "host-copies", "loopback", "nic-pair", "disk", "shared-memory-room", "shared-memory"}
EXAMINER = "diagnose.nodecheck.examiner"
HELD_BYTES = 100 << 20
BROKEN_TORCH = 'raise ImportError("no torch on this machine")'


def by_check(answer: Answer) -> dict[str, dict[str, Any]]:
    printed = json.loads(answer.out)
    return {one["check"]: one for one in printed["checks"]}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment without a training."""
    return {"RANKSCOPE_SPOOL": str(tmp_path_factory.mktemp("spool"))}


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory, alone: dict[str, str]) -> dict[str, str]:
    """An environment without a training, in which torch cannot be imported."""
    first = tmp_path_factory.mktemp("first")
    (first / "torch").mkdir()
    (first / "torch" / "__init__.py").write_text(BROKEN_TORCH)
    return {**alone, "PYTHONPATH": str(first)}


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory, without_torch: dict[str, str]) -> Answer:
    """The answer of the command if torch is missing, the first check hangs, and two values are expected."""
    expected = tmp_path_factory.mktemp("expected") / "expect.toml"
    expected.write_text("shared_memory_free_gib = 1e9\nhost_copy_gb_s = 1e-9\n")
    with node_check(without_torch, "--expect", str(expected), seconds=8) as process:
        first_check_of(process).send_signal(signal.SIGSTOP)
        out, _ = process.communicate(timeout=120)
    return Answer(status=process.returncode, out=out, error="")


@pytest.mark.gloo
def test_all_checks_pass_on_a_healthy_machine(tmp_path: Path, alone: dict[str, str]) -> None:
    answer = rankscope("doctor", "--node", "--folder", tmp_path, "--seconds", 60, "--json", **alone)
    assert answer.status == 0, answer.out + answer.error
    found = by_check(answer)
    assert set(found) == NEEDS_TORCH | EVERYWHERE
    assert {found[check]["verdict"] for check in ("gemm", "all-to-all", "disk", "host-memory")} == {"measured"}


@pytest.mark.long
def test_checks_that_need_torch_are_skipped_when_torch_is_missing(hung: Answer) -> None:
    found = by_check(hung)
    assert {check for check, one in found.items() if one["verdict"] == "skipped"} >= NEEDS_TORCH
    assert "no torch on this machine" in found["gemm"]["detail"]


def test_measured_values_are_compared_with_the_expected_values(hung: Answer) -> None:
    found = by_check(hung)
    assert hung.status == 1
    assert (found["shared-memory-room"]["verdict"], found["host-copies"]["verdict"]) == ("slow", "ok")


def test_hung_check_fails_and_the_next_checks_still_run(hung: Answer) -> None:
    found = by_check(hung)
    assert [one["detail"] for one in found.values() if one["verdict"] == "failed"] == ["did not finish in 8 s"]
    assert found["shared-memory"]["verdict"] == "measured"


def test_node_check_is_rejected_while_a_rank_records_on_the_host(tmp_path: Path) -> None:
    with session(tmp_path):
        answer = rankscope("doctor", "--node", RANKSCOPE_SPOOL=str(tmp_path))
    assert answer.status == 2, answer.out
    assert "rank 0 of run test is recording on this host" in answer.error
    assert "hint: " in answer.error


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        signal.SIGKILL,
    ],
)
def test_no_process_is_left_when_a_signal_ends_the_command(how: signal.Signals, without_torch: dict[str, str]) -> None:
    with node_check(without_torch, seconds=600) as process:
        check = first_check_of(process)
        check.send_signal(signal.SIGSTOP)  # it would not end by itself
        family = [check, *psutil.Process(process.pid).children(recursive=True)]
        try:
            process.send_signal(how)
            process.wait(60)
            until(lambda: not any(alive(one.pid) for one in family), what="the end of all its processes")
        finally:
            for one in family:
                with suppress(psutil.Error):
                    one.kill()
    assert process.returncode != 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node", "--seconds", "1"), "is too low"),
        (("--node", "--interface", "eth99"), "no network interface 'eth99'"),
        (("--node", "--folder", "/nowhere"), "no folder /nowhere"),
        (("--node", "--expect", "/nowhere.toml"), "cannot read expectations"),
        (("--node", "--pairs"), "cannot be used together"),
        (("--node", "--node-rank", "1"), "must be used together"),
        (("--pairs",), "needs a rendezvous"),
    ],
)
def test_invalid_doctor_options_are_reported_with_a_hint(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rankscope", "doctor", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    message = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert words in message
    assert "hint: " in message


@contextmanager
def node_check(environment: dict[str, str], *options: str, seconds: int) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ui.cli", "doctor", "--node", "--seconds", str(seconds), "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=_interruptible,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _interruptible() -> None:
    """Restore SIGINT. A shell that starts tests in the background makes all children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def first_check_of(process: "subprocess.Popen[str]") -> psutil.Process:
    """A running check that takes some time: a child of the examiner that has allocated memory.

    Only the processes of the command are read: a list of all processes takes milliseconds, and a check runs for half a
    second.
    """
    found: list[int] = []

    def look() -> bool:
        with suppress(OSError):
            examiners = [pid for pid in children(process.pid) if EXAMINER in Path(f"/proc/{pid}/cmdline").read_text()]
            found.extend(check for pid in examiners for check in children(pid) if resident_bytes(check) > HELD_BYTES)
        return bool(found)

    until(look, every=0.005, what="a check under way")
    return psutil.Process(found[0])


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_node_check_guide_mentions_every_option() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(doctor)
    options = {name for one in typer.main.get_command(app).params for name in one.opts}
    guide = GUIDE.read_text()
    assert {"--force", "--interface"} <= options
    assert [
        name for name in sorted(options - OF_OTHERS) if f"`{name}" not in guide and f"doctor {name}`" not in guide
    ] == []
