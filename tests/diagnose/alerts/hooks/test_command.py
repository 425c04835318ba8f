"""The command hook with real programs: notices on stdin, no shell, and a kill at the timeout."""

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from diagnose.alerts.hooks.command import INHERITED
from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.hooks.shape import v4_body
from tests.deadline import until
from tests.diagnose.alerts.made_notice import made_notice

TELL = """
import json, os, sys
told = {"argv": sys.argv[2:], "stdin": json.load(sys.stdin), "environment": dict(os.environ),
        "leads": os.getpgid(0) == os.getpid(), "open": sorted(os.listdir("/proc/self/fd"))}
open(sys.argv[1], "w").write(json.dumps(told))
"""
LEAVE_A_GRANDCHILD = 'sleep 300 & echo $! > "$0"; sleep "$1"'


def command(*argv: str, **keys: object) -> Hook:
    return make_hook("page", {"type": "command", "argv": list(argv), **keys})


def python(program: str, *arguments: str, **keys: object) -> Hook:
    return command(sys.executable, "-c", program, *arguments, **keys)


def refusal(hook: Hook, *, again: bool = True) -> HookError:
    with pytest.raises(HookError) as caught:
        hook.send([made_notice()])
    assert caught.value.again is again
    return caught.value


def gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def command_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Arguments, stdin, environment and open files, as a command reports them."""
    for name in ("PAGER_PASSWORD", "AWS_SECRET_ACCESS_KEY", "RANKSCOPE_TOKEN", "LD_PRELOAD"):
        monkeypatch.setenv(name, "" if name == "LD_PRELOAD" else f"secret of {name}")
    canary = tmp_path / "canary"
    arguments = ["two words", f"$(touch {canary})", f"`touch {canary}`; touch {canary}", "*", "$HOME", ""]
    python(TELL, str(tmp_path / "told"), *arguments, pass_env=["PAGER_PASSWORD"]).send([made_notice(number=12)])
    assert not canary.exists()
    told: dict[str, object] = json.loads((tmp_path / "told").read_text())
    assert told["argv"] == arguments
    return told


def test_command_gets_its_arguments_unchanged_and_the_body_on_stdin(command_inputs: dict[str, object]) -> None:
    assert command_inputs["stdin"] == v4_body("page", [made_notice(number=12)])
    assert command_inputs["leads"]


def test_command_environment_contains_the_alert_and_only_permitted_secrets(command_inputs: dict[str, object]) -> None:
    environment: dict[str, str] = command_inputs["environment"]  # type: ignore[assignment]
    alert = {name.removeprefix("RANKSCOPE_ALERT_"): value for name, value in environment.items() if "_ALERT_" in name}
    assert alert == {
        "STATUS": "firing",
        "FINGERPRINT": "00c0ffee00c0ffee",
        "NUMBER": "12",
        "NAME": "hung-collective",
        "SEVERITY": "critical",
        "RUN_ID": "monday",
        "HOST": "gpu-003",
        "RANK": "5",
        "SUMMARY": made_notice().summary,
        "LINK": made_notice().link,
    }
    assert environment["PAGER_PASSWORD"] == "secret of PAGER_PASSWORD"
    assert {name for name in environment if "_ALERT_" not in name} <= {*INHERITED, "PAGER_PASSWORD"}
    # Standard input, output and error, and the folder that is being listed.
    assert len(command_inputs["open"]) == 4  # type: ignore[arg-type]


def test_failed_command_is_retried_and_reported_with_its_first_line_without_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGER_PASSWORD", "hunter2hunter2")
    fails = "import os, sys; sys.exit('no route as ' + os.environ['PAGER_PASSWORD'] + '\\x1b[31m\\nsecond line')"
    error = refusal(python(fails, pass_env=["PAGER_PASSWORD"]))
    assert str(error) == f"hook page: {sys.executable}: exit status 1: no route as ***\\x1b[31m"


def test_command_rejects_a_notice_permanently_with_exit_status_65_only() -> None:
    error = refusal(command("sh", "-c", "echo no such host >&2; exit 65"), again=False)
    assert str(error) == "hook page: sh: exit status 65: no such host"
    for status in (1, 2, 64, 66, 75, 127):
        refusal(command("sh", "-c", f"exit {status}"))


def test_a_command_that_is_killed_is_reported() -> None:
    assert "killed by signal 9" in str(refusal(python("import os; os.kill(os.getpid(), 9)")))


def test_command_that_ignores_stdin_or_prints_much_output_counts_as_delivered(tmp_path: Path) -> None:
    make_hook("page", {"type": "command", "argv": ["true"]}).send([made_notice(summary="x" * 1_000_000)])
    python("import sys; sys.stderr.write('x' * 3_000_000); sys.stdout.write('x' * 3_000_000)").send([made_notice()])


def test_command_timeout_kills_the_command_and_its_children(tmp_path: Path) -> None:
    error = refusal(command("sh", "-c", LEAVE_A_GRANDCHILD, str(tmp_path / "pid"), "300", timeout_s=1.5))
    assert "killed: did not finish within 1.5 s" in str(error)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: gone(pid), seconds=10, what=f"the end of process {pid}")


def test_background_child_of_a_command_does_not_block_the_hook_and_keeps_running(tmp_path: Path) -> None:
    command("sh", "-c", LEAVE_A_GRANDCHILD, str(tmp_path / "pid"), "0", timeout_s=60).send([made_notice()])
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    try:
        assert not gone(left.pid)
    finally:
        left.kill()


def test_command_is_retried_when_its_program_was_deleted(tmp_path: Path) -> None:
    program = tmp_path / "page"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    hook = command(str(program))
    hook.send([made_notice()])
    program.unlink()
    assert "No such file" in str(refusal(hook))


def test_command_starts_when_its_notice_has_special_characters_and_a_long_summary() -> None:
    command("true").send([made_notice(labels={"host": "a\0b\udcff\ud800\u2603"}, summary="=" * 1_000_000)])


WATCHER = """
import os, sys
from diagnose.alerts.hooks.registry import make_hook
from tests.diagnose.alerts.made_notice import made_notice
import threading
argv = ["sh", "-c", 'sleep 300 & echo $! > "$0.new"; mv "$0.new" "$0"; sleep 300', sys.argv[1]]
hook = make_hook("page", {"type": "command", "argv": argv, "timeout_s": 600})
threading.Thread(target=hook.send, args=([made_notice()],), daemon=True).start()
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_command_and_its_children_end_when_the_watcher_exits_or_is_killed(tmp_path: Path, killed: bool) -> None:
    written = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", WATCHER, str(written)], stdin=subprocess.PIPE) as watcher:
        until(written.is_file, seconds=60)
        below = psutil.Process(watcher.pid).children(recursive=True)
        assert int(written.read_text()) in {one.pid for one in below}
        if killed:
            watcher.kill()
    until(lambda: all(gone(one.pid) for one in below), seconds=30, what="the end of all that it began")
