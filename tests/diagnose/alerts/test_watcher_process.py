"""`rankscope alerts run` as a real process: killed, cut off from its store and its receiver, ended."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.alerts.alert_store import read_alert_store
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Alerts
from tests.deadline import until
from tests.diagnose.alerts.made_store import put_beats, put_run
from tests.integration.processes import Part
from tests.memory_store import memory_store
from tests.scenarios.command import rankscope
from tests.telemetry.served import collecting
from ui.cli.commands.alerts import alerts_app

RULES = """
state = "alerts.sqlite"
every = 0.2
[rules]
for = 0
keep_firing_for = 1
[hooks.file]
type = "log"
path = "{told}"
resend_s = 0.3
"""
SLOW_MACHINE_S = 120
ALERTS = [sys.executable, "-c", "from ui.cli.commands.alerts import alerts_app; alerts_app()"]
"""`rankscope alerts`, without what the other commands import."""
pytestmark = pytest.mark.chaos


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A collector over a run with a slow rank, a file of rules, and the file that notices go to."""

    store: EmbeddedStore
    rules: Path
    told: Path
    watcher: Part

    def lines(self, status: str) -> list[str]:
        text = self.told.read_text() if self.told.is_file() else ""
        return [line for line in text.splitlines() if line.split()[1] == status]

    def shown(self) -> list[str]:
        """The phases of what the dashboard is told."""
        return [str(phase) for phase in StoreReader(self.store).read(Alerts())["phase"].to_pylist()]

    def waiting(self) -> int:
        """Notices that were not sent yet."""
        return sum(one.count for one in read_alert_store(self.rules.parent / "alerts.sqlite")[1].values())

    def looks_again(self) -> None:
        """The watcher has looked and told since this was asked."""
        before = len(self.lines("still-firing"))
        until(lambda: len(self.lines("still-firing")) > before, what="another check", seconds=SLOW_MACHINE_S)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A file of rules that tell `told.log` beside it."""
    written = tmp_path / "rules.toml"
    written.write_text(RULES.format(told=tmp_path / "told.log"))
    return written


@pytest.fixture
def scene(rules: Path, tmp_path: Path) -> Iterator[Scene]:
    told, log = tmp_path / "told.log", tmp_path / "watcher.log"
    with memory_store() as store, collecting(store) as client:
        put_run(store, "monday", "slow:rank=5,factor=1.4", num_steps=20)
        put_beats(store, "monday", ended=False)
        command = [*ALERTS, "run", "--config", str(rules), "--store", client.url]
        watcher = Part("watcher", command, log)
        yield Scene(store=store, rules=rules, told=told, watcher=watcher)
        watcher.kill()


@pytest.mark.long
def test_a_watcher_that_is_killed_between_looks_loses_and_repeats_nothing(scene: Scene) -> None:
    scene.watcher.start()
    until(lambda: scene.lines("firing"), what="the alert", seconds=SLOW_MACHINE_S)
    for _ in range(2):
        scene.looks_again()
        scene.watcher.kill()
        scene.watcher.start()
    scene.looks_again()
    put_beats(scene.store, "monday", ended=True)
    until(lambda: scene.lines("resolved"), what="the end", seconds=SLOW_MACHINE_S)
    until(lambda: scene.shown() == ["resolved"], what="the end on the dashboard", seconds=SLOW_MACHINE_S)
    assert scene.watcher.end() == 0
    assert len(scene.lines("firing")) == 1
    assert len(scene.lines("resolved")) == 1
    assert listed(scene.rules).exit_code == 0


def test_what_was_not_sent_when_it_was_killed_is_sent_by_the_next_one(scene: Scene) -> None:
    os.mkfifo(scene.told)  # a receiver that nobody is behind
    scene.watcher.start()
    until(
        lambda: (scene.rules.parent / "alerts.sqlite").exists() and scene.waiting(),
        what="a notice that waits",
        seconds=SLOW_MACHINE_S,
    )
    scene.watcher.kill()
    scene.told.unlink()
    scene.watcher.start()
    until(lambda: scene.lines("firing"), what="the alert", seconds=SLOW_MACHINE_S)
    scene.looks_again()
    assert len(scene.lines("firing")) == 1
    answer = listed(scene.rules)
    assert answer.exit_code == 1
    assert '"kind": "compute-straggler"' in answer.stdout
    second = rankscope("alerts", "run", "--config", scene.rules, "--store", "http://127.0.0.1:1")
    assert second.status == 2
    assert "another watcher" in second.error


def test_a_collector_that_is_gone_is_told_once_and_ends_nothing(rules: Path, tmp_path: Path) -> None:
    log = tmp_path / "alone.log"
    command = ["run", "--config", str(rules), "--store", "http://127.0.0.1:1", "--every", "0.2"]
    alone = Part("alone", [*ALERTS, *command], log)
    alone.start()
    until(
        lambda: log.is_file() and "alerts do not change until the store answers" in log.read_text(),
        what="the complaint",
        seconds=SLOW_MACHINE_S,
    )
    until(ticked(alone.pid), what="some more checks", seconds=SLOW_MACHINE_S)
    assert alone.end() == 0
    assert log.read_text().count("alerts do not change until the store answers") == 1


def ticked(pid: int) -> Callable[[], bool]:
    """Whether the process has woken up a good many times since."""

    def switches() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("voluntary")))

    first = switches()
    return lambda: switches() > first + 10


def test_a_collector_whose_rules_are_wrong_does_not_start(rules: Path, tmp_path: Path) -> None:
    rules.write_text("evry = 5")
    answer = rankscope("collect", "--alerts", rules, "--store", f"embedded:{tmp_path / 'store'}")
    assert answer.status == 2
    assert "did you mean every?" in answer.error
    assert not (tmp_path / "store").exists()


def listed(rules: Path) -> Result:
    """What `rankscope alerts list` says."""
    return CliRunner().invoke(alerts_app, ["list", "--config", str(rules), "--json"])
