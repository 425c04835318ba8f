"""The agent of a launcher: how long it waits for ranks, when it is restarted, and when it is stopped."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from telemetry.agent.settings import parse_settings
from tests.deadline import until
from trainer.agent import APPEAR_S, AgentKeeper
from trainer.run_options import RunOptions

NO_COLLECTOR = "http://127.0.0.1:9"


def agent_of(spool: Path) -> tuple[int, list[str]] | None:
    """The pid and the command line of the agent that follows ``spool``."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "telemetry.agent" in words and str(spool) in words:
            return int(place.parent.name), words[words.index("telemetry.agent") + 1 : -1]
    return None


def test_agent_gets_the_long_rank_timeout_and_is_stopped_when_no_rank_appears(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    options = RunOptions(out=tmp_path, run_id="run", attempt=0, collector=NO_COLLECTOR, spool=tmp_path / "spool")
    with AgentKeeper(options):
        until(lambda: agent_of(tmp_path / "spool") is not None, what="the agent")
        found = agent_of(tmp_path / "spool")
        assert found is not None
        pid, arguments = found
    assert parse_settings("agent", arguments, collector=NO_COLLECTOR).appear_s == APPEAR_S
    assert not Path(f"/proc/{pid}").exists()


class Clock:
    """A clock that moves only when the test sets it. It counts how often it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.num_read = 0

    def __call__(self) -> float:
        self.num_read += 1
        return self.now_s


def keeping(tmp_path: Path, clock: Clock, interrupted: Callable[[], int] = lambda: 0) -> AgentKeeper:
    (tmp_path / "logs").mkdir()
    options = RunOptions(out=tmp_path, run_id="run", attempt=0, collector=NO_COLLECTOR, spool=tmp_path / "spool")
    return AgentKeeper(options, interrupted, clock_s=clock)


def see_death(keeper: AgentKeeper, clock: Clock) -> None:
    """Call ``restart_if_dead`` until the keeper notices the death of the agent: then it reads the clock."""
    num_read = clock.num_read

    def seen() -> bool:
        keeper.restart_if_dead()
        return clock.num_read > num_read

    until(seen, what="its death is seen")


def test_agent_that_dies_repeatedly_is_restarted_after_pauses_that_double(tmp_path: Path) -> None:
    clock, spool = Clock(), tmp_path / "spool"
    with keeping(tmp_path, clock) as keeper:
        for pause_s in (1, 2, 4):
            until(lambda: agent_of(spool), what="the agent")
            found = agent_of(spool)
            assert found is not None
            os.kill(found[0], signal.SIGKILL)
            see_death(keeper, clock)
            clock.now_s += pause_s - 0.1
            keeper.restart_if_dead()
            assert agent_of(spool) is None
            clock.now_s += 0.2
            keeper.restart_if_dead()
        until(lambda: agent_of(spool), what="the last agent")


def test_failed_agent_restart_is_retried_later_and_raises_no_error(tmp_path: Path) -> None:
    clock, spool = Clock(), tmp_path / "spool"
    with keeping(tmp_path, clock) as keeper:
        until(lambda: agent_of(spool), what="the agent")
        found = agent_of(spool)
        assert found is not None
        os.kill(found[0], signal.SIGKILL)
        see_death(keeper, clock)
        log = tmp_path / "logs" / "agent.log"
        log.unlink()
        log.mkdir()
        clock.now_s += 1.1
        keeper.restart_if_dead()
        log.rmdir()
        keeper.restart_if_dead()
        assert agent_of(spool) is None
        clock.now_s += 2.1
        keeper.restart_if_dead()
        until(lambda: agent_of(spool), what="the next agent")


def test_agent_that_waits_for_its_restart_starts_at_once_when_the_ranks_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spool" / "run" / "0" / "rank-00000").mkdir(parents=True)
    clock, started = Clock(), []

    def interrupted() -> int:
        """Return SIGTERM until the agent was seen, then SIGINT, so that the keeper does not wait for the agent."""
        started.append(agent_of(tmp_path / "spool"))
        return signal.SIGINT if any(started) else signal.SIGTERM

    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # the agent ends with status 1
    with keeping(tmp_path, clock, interrupted) as keeper:
        see_death(keeper, clock)
        monkeypatch.delenv("PYTHONHOME")
    assert any(started)


def test_appear_option_sets_how_long_the_agent_waits_for_a_first_rank() -> None:
    given = parse_settings("agent", ["--spool", "s", "--collector", NO_COLLECTOR, "--appear", "7"], collector=None)
    assert given.appear_s == 7
