"""`rankscope alerts run` as a real process: killed, without its store or its receiver, and ended normally."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from diagnose.alerts.alert_store import read_alert_store
from telemetry.finding_log import Action
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import AlertLooks, Alerts, Findings
from telemetry.wire.client import CollectorClient
from telemetry.wire.finding_action import FindingAction
from tests.alertmanager_server import running_alertmanager
from tests.deadline import until
from tests.diagnose.alerts.hooks.http_receiver import http_receiver
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
    """A collector over a run with a slow rank, a settings file, and the file that receives the notices."""

    store: EmbeddedStore
    client: CollectorClient
    rules: Path
    told: Path
    watcher: Part

    def lines(self, status: str) -> list[str]:
        text = self.told.read_text() if self.told.is_file() else ""
        return [line for line in text.splitlines() if line.split()[1] == status]

    def shown(self) -> list[str]:
        """The phases of the alerts that the dashboard receives."""
        return [str(phase) for phase in StoreReader(self.store).read(Alerts())["phase"].to_pylist()]

    def waiting(self) -> int:
        """The number of unsent notices."""
        return sum(one.count for one in read_alert_store(self.rules.parent / "alerts.sqlite")[1].values())

    def wait_for_another_check(self) -> None:
        """Wait until the watcher has checked and sent again."""
        before = len(self.lines("still-firing"))
        until(lambda: len(self.lines("still-firing")) > before, what="another check", seconds=SLOW_MACHINE_S)


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A settings file whose hook writes to `told.log` beside it."""
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
        yield Scene(store=store, client=client, rules=rules, told=told, watcher=watcher)
        watcher.kill()


@pytest.mark.long
def test_watcher_killed_between_checks_sends_each_notice_exactly_once(scene: Scene) -> None:
    scene.watcher.start()
    until(lambda: scene.lines("firing"), what="the alert", seconds=SLOW_MACHINE_S)
    for _ in range(2):
        scene.wait_for_another_check()
        scene.watcher.kill()
        scene.watcher.start()
    scene.wait_for_another_check()
    put_beats(scene.store, "monday", ended=True)
    until(lambda: scene.lines("resolved"), what="the end", seconds=SLOW_MACHINE_S)
    until(lambda: scene.shown() == ["resolved"], what="the end on the dashboard", seconds=SLOW_MACHINE_S)
    assert scene.watcher.end() == 0
    assert len(scene.lines("firing")) == 1
    assert len(scene.lines("resolved")) == 1
    assert listed(scene.rules).exit_code == 0


def test_notice_unsent_when_the_watcher_is_killed_is_sent_by_the_next_watcher(scene: Scene) -> None:
    os.mkfifo(scene.told)  # a FIFO without a reader: the hook cannot write
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
    scene.wait_for_another_check()
    assert len(scene.lines("firing")) == 1
    answer = listed(scene.rules)
    assert answer.exit_code == 1
    assert '"kind": "compute-straggler"' in answer.stdout
    second = rankscope("alerts", "run", "--config", scene.rules, "--store", "http://127.0.0.1:1")
    assert second.status == 2
    assert "another watcher" in second.error


@pytest.mark.alertmanager
def test_incident_is_logged_once_and_its_silence_applies_to_people_and_alertmanager(scene: Scene) -> None:
    def logged() -> list[str]:
        return [str(row["state"]) for row in scene.client.read(Findings()).to_pylist()]

    def looked_ns() -> int:
        return max(scene.client.read(AlertLooks())["at_ns"].to_pylist(), default=0)

    with http_receiver() as theirs, running_alertmanager(f"{theirs.url}/alerts") as manager:
        with scene.rules.open("a") as rules:
            rules.write(f'[hooks.manager]\ntype = "alertmanager"\nurl = "{manager.url}"\nresend_s = 0.5\n')
        scene.watcher.start()
        until(lambda: scene.lines("still-firing"), what="the alert", seconds=SLOW_MACHINE_S)
        until(lambda: logged() == ["raised"], what="its row in the log", seconds=SLOW_MACHINE_S)
        (found,) = scene.client.read(Findings()).to_pylist()
        hour_ns = time.time_ns() + 3600 * 10**9
        silence = {"action": Action.SILENCE, "who": "Ada", "until_ns": hour_ns}
        scene.client.act(FindingAction(fingerprint=found["fingerprint"], **silence))
        until(
            lambda: [alert["status"]["state"] for alert in manager.alerts(run_id="monday")] == ["suppressed"],
            what="the silence in Alertmanager",
            seconds=SLOW_MACHINE_S,
        )
        calls, before_ns = len(scene.lines("still-firing")), looked_ns()
        scene.watcher.kill()
        scene.watcher.start()
        until(lambda: looked_ns() > before_ns, what="a check of the next watcher", seconds=SLOW_MACHINE_S)
        assert len(scene.lines("still-firing")) == calls
        put_beats(scene.store, "monday", ended=True)
        until(lambda: logged() == ["resolved"], what="its end in the log", seconds=SLOW_MACHINE_S)
        until(lambda: scene.lines("resolved"), what="the end", seconds=SLOW_MACHINE_S)
        until(lambda: manager.alerts(run_id="monday") == [], what="the end in Alertmanager", seconds=SLOW_MACHINE_S)
        assert scene.watcher.end() == 0
    assert (len(scene.lines("firing")), len(scene.lines("resolved"))) == (1, 1)
    assert sorted(scene.store.query("SELECT state FROM findings FINAL")["state"].to_pylist()) == ["raised", "resolved"]


def test_unreachable_collector_is_reported_once_and_does_not_stop_the_watcher(rules: Path, tmp_path: Path) -> None:
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
    """A function that returns whether the process has woken up more than ten times since this call."""

    def switches() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("voluntary")))

    first = switches()
    return lambda: switches() > first + 10


def test_collector_does_not_start_when_its_alert_settings_are_invalid(rules: Path, tmp_path: Path) -> None:
    rules.write_text("evry = 5")
    answer = rankscope("collect", "--alerts", rules, "--store", f"embedded:{tmp_path / 'store'}")
    assert answer.status == 2
    assert "did you mean every?" in answer.error
    assert not (tmp_path / "store").exists()


def listed(rules: Path) -> Result:
    """The result of `rankscope alerts list --json`."""
    return CliRunner().invoke(alerts_app, ["list", "--config", str(rules), "--json"])
