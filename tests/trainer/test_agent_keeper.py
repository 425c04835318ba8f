"""The agent beside the ranks: how long it waits for them, and when it is let go."""

from pathlib import Path

from telemetry.agent.command import parse_settings
from tests.deadline import until
from trainer.agent import APPEAR_S, AgentKeeper
from trainer.config import RunOptions

NOBODY = "http://127.0.0.1:9"


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


def test_an_agent_waits_long_for_slow_ranks_and_is_let_go_when_none_has_come(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    options = RunOptions(out=tmp_path, run_id="run", attempt=0, collector=NOBODY, spool=tmp_path / "spool")
    with AgentKeeper(options):
        until(lambda: agent_of(tmp_path / "spool") is not None, what="the agent")
        found = agent_of(tmp_path / "spool")
        assert found is not None
        pid, arguments = found
    assert parse_settings("agent", arguments, collector=NOBODY).appear_s == APPEAR_S
    assert not Path(f"/proc/{pid}").exists()


def test_a_long_wait_for_a_first_rank_can_be_asked_for() -> None:
    given = parse_settings("agent", ["--spool", "s", "--collector", NOBODY, "--appear", "7"], collector=None)
    assert given.appear_s == 7
