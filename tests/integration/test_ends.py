"""A command leaves nothing behind that it started, however it ends."""

import select
import socket
import sys
from pathlib import Path

import pytest

from tests.deadline import until
from tests.integration.ended import ENDS, SCENES, end, rankscope, staged, terminal
from tests.telemetry.recording import session

QUICK = {("train", "closed terminal"), ("collect", "SIGKILL")}
"""These and the tests below use every mechanism. The others are ``long``."""
pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, marks=[] if (name, way) in QUICK else pytest.mark.long)
        for name in SCENES
        for way in ENDS
    ],
)
def test_command_leaves_nothing_behind_however_it_ends(name: str, way: str, tmp_path: Path) -> None:
    assert staged(name, way, tmp_path).faults == []


def test_killed_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    with terminal(rankscope("demo", "--out", str(tmp_path / "out")), tmp_path) as seen:
        until(lambda: any(" train " in words for words in seen.living().values()), what="a training", seconds=60)
        assert len(seen.living()) >= 3
        assert end(seen, ENDS["SIGKILL"]).faults == []


def test_agent_whose_collector_never_answers_ends_on_ctrl_c(tmp_path: Path) -> None:
    with session(tmp_path / "spool"):
        pass
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "telemetry.agent", "--spool", str(tmp_path / "spool"), "--collector", url]
        with terminal(command, tmp_path) as seen:
            arrived = select.poll()
            arrived.register(silent)
            assert arrived.poll(60_000)  # the kernel answers for a listener that accepts nothing
            assert end(seen, ENDS["Ctrl-C three times"]).faults == []
