"""Errors that a user can fix become package errors with a hint. Our own defects stay exceptions."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import telemetry
from telemetry.errors import UnreachableError, UsageError
from telemetry.user_errors import CRASH_STATUS, user_error
from tests.each_case import each_case


def test_error_of_this_package_is_returned_unchanged() -> None:
    error = UnreachableError("no answer", hint="start it")
    assert user_error(error) is error


def test_an_error_about_a_path_names_the_path_on_one_line() -> None:
    error = user_error(OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/proc/new\nline\x1b[31m"))
    assert isinstance(error, UsageError)
    assert error.message == "/proc/new\\nline\\x1b[31m: No such file or directory"


def test_permission_error_below_the_python_prefix_is_a_user_error() -> None:
    assert user_error(PermissionError(errno.EACCES, "Permission denied", f"{sys.prefix}/out")) is not None


@each_case("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_full_disk_is_a_user_error_even_without_a_path(number: int) -> None:
    error = user_error(OSError(number, os.strerror(number)))
    assert error is not None
    assert "free some space there" in error.hint


def test_symlink_loop_is_a_user_error() -> None:
    assert user_error(RuntimeError("Symlink loop from '/tmp/a'")) is not None


@each_case(
    "error",
    [
        KeyError("x"),
        RuntimeError("x"),
        OSError(errno.EBADF, "Bad file descriptor"),
        FileNotFoundError(errno.ENOENT, "No such file", str(Path(telemetry.__file__).parent / "stores" / "0.sql")),
        FileNotFoundError(errno.ENOENT, "No such file", os.__file__),
        ModuleNotFoundError("No module named 'telemetry.x'", name="telemetry.x"),
        ModuleNotFoundError("No module named 'unheard_of'", name="unheard_of"),
    ],
)
def test_defect_of_this_package_is_not_a_user_error(error: Exception) -> None:
    assert user_error(error) is None


@each_case(
    ("package", "extra", "named"),
    [("psutil", "agent", "agent"), ("psutil", "ui", "ui"), ("plotly", "agent", "ui"), ("plotly", "all", "all")],
)
def test_error_about_a_missing_package_names_the_extra_that_installs_it(package: str, extra: str, named: str) -> None:
    error = user_error(ModuleNotFoundError(f"No module named {package!r}", name=package), extra=extra)
    assert error is not None
    assert (error.message, error.hint) == (
        f"this command needs the package {package}",
        f"pip install 'rankscope[{named}]'",
    )


def test_agent_with_a_defect_exits_with_the_crash_status_and_a_traceback() -> None:
    defect = "import sys; sys.modules['telemetry.agent.loop'] = None; import telemetry.agent.__main__ as agent"
    call = "sys.argv[1:] = '--spool', 'spool', '--collector', 'http://127.0.0.1:1'; sys.exit(agent.main())"
    ended = subprocess.run([sys.executable, "-c", f"{defect}; {call}"], capture_output=True, text=True, check=False)
    assert ended.returncode == CRASH_STATUS
    assert "Traceback" in ended.stderr
