"""A child process is restarted when it exits, and stopped at the end of the ``with`` block."""

import sys
from pathlib import Path

from diagnose.alerts.child import KeptAlive
from tests.deadline import until

LIVES = """
import signal, sys
told = open(sys.argv[1], "a", buffering=1)
signal.signal(signal.SIGTERM, lambda *_: told.write("ended\\n") and sys.exit())
told.write("born\\n")
signal.pause()
"""
DIES = "import sys; open(sys.argv[1], 'a').write('born\\n'); sys.exit(3)"


def test_child_process_gets_sigterm_at_the_end_of_the_with_block(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with KeptAlive([sys.executable, "-c", LIVES, str(told)], print):
        until(lambda: told.is_file() and told.read_text())
    assert told.read_text() == "born\nended\n"


def test_child_process_that_exits_is_restarted_after_pauses_that_double(tmp_path: Path) -> None:
    told, said = tmp_path / "told", []
    command = [sys.executable, "-c", DIES, str(told)]
    with KeptAlive(command, said.append, first_pause_s=0.01, clock_s=lambda: 0.0):
        until(lambda: len(said) >= 3)
    assert told.read_text().count("born") >= 3
    assert said[:3] == [f"the alert watcher ended (status 3); it restarts in {s:g} s" for s in (0.01, 0.02, 0.04)]


def test_child_command_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    with KeptAlive([str(tmp_path / "none")], said.append, first_pause_s=0.01):
        until(lambda: said)
    assert "No such file" in said[0]


def test_child_process_is_restarted_when_standard_error_is_closed(tmp_path: Path) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError(text)

    told = tmp_path / "told"
    with KeptAlive([sys.executable, "-c", DIES, str(told)], gone, first_pause_s=0.01):
        until(lambda: told.is_file() and told.read_text().count("born") >= 2)


def test_child_command_with_a_null_byte_is_reported_and_retried() -> None:
    said: list[str] = []
    with KeptAlive(["a\0b"], said.append, first_pause_s=0.01):
        until(lambda: len(said) >= 2)
    assert "embedded null byte" in said[0]
