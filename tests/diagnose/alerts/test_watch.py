"""The watcher between two looks: how long it waits, and what it does where nobody answers or nothing can be written."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from diagnose.alerts.complaints import Complaints
from diagnose.alerts.ledger import Ledger, read_ledger
from diagnose.alerts.life import State
from diagnose.alerts.watch import Watcher
from diagnose.findings import Kind
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.question import Query
from tests.diagnose.alerts.made_looks import START_NS, Watched, finding, policy, quick


class NoRuns:
    """Answers every question with nothing; or, while it is told to, nothing at all."""

    def __init__(self) -> None:
        self.silent = False
        self.opened = 0

    def read(self, query: Query) -> pa.Table:
        if self.silent:
            raise UnreachableError("nobody there", hint="none")
        return pa.table({})

    @contextmanager
    def open(self) -> Iterator["NoRuns"]:
        self.opened += 1
        yield self


class Scene:
    def __init__(self, path: Path, state: State) -> None:
        self.said: list[str] = []
        self.reader = NoRuns()
        self.ledger = Ledger(path)
        self.now_ns = START_NS + 5_000_000_000
        self.watcher = Watcher(
            open_reader=self.reader.open,
            ledger=self.ledger,
            policy=policy(),
            dispatchers=(),
            complaints=Complaints(self.said.append),
            clock_ns=lambda: self.now_ns,
        )
        self.watcher.state = state


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "alerts.sqlite", State())
    yield made
    made.ledger.close()


def firing() -> State:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    return watched.state


def pending(kind: Kind) -> State:
    watched = Watched(policy())
    watched.sees(finding(kind, 5))
    return watched.state


def test_a_slow_store_is_looked_at_less_often(scene: Scene) -> None:
    assert scene.watcher.pause_s(5, 0.1) == 5
    assert scene.watcher.pause_s(5, 4) == 12


def test_what_is_pending_is_looked_at_as_soon_as_it_may_fire(scene: Scene) -> None:
    scene.watcher.state = pending(Kind.COMPUTE_STRAGGLER)
    assert scene.watcher.pause_s(5, 0.1) == 2
    scene.now_ns += 1_900_000_000
    assert scene.watcher.pause_s(5, 0.1) == 0.5
    scene.watcher.state = pending(Kind.MFU_DECLINE)
    assert scene.watcher.pause_s(5, 0.1) == 5


def test_a_store_that_does_not_answer_is_told_once_and_once_more_when_it_does(scene: Scene) -> None:
    scene.watcher.state = firing()
    scene.reader.silent = True
    for _ in range(50):
        scene.now_ns += 10_000_000_000
        scene.watcher.look(5)
    assert all(alert.is_alive for alert in scene.watcher.state.alerts.values())
    scene.reader.silent = False
    scene.watcher.look(5)
    scene.watcher.look(5)
    assert scene.said == ["nobody there; alerts stand still until it answers", "the store answers again"]


def test_what_cannot_be_written_down_has_not_happened_yet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.watcher.state = firing()
    scene.watcher.look(5)  # the run is over: absent from here on
    scene.now_ns += 3_600_000_000_000

    def full(outcome: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(scene.ledger, "store", full)
        scene.watcher.look(5)
        scene.watcher.look(5)
    assert [str(alert.phase) for alert in scene.watcher.state.alerts.values()] == ["firing"]
    scene.watcher.look(5)
    assert [str(alert.phase) for alert in scene.watcher.state.alerts.values()] == ["resolved"]
    assert scene.ledger.num_waiting() == {"log": 1}
    assert [line.split(":")[0] for line in scene.said] == [
        "alerts cannot be written down, and wait",
        "alerts are written down again",
    ]


def test_an_address_that_is_none_ends_the_command(tmp_path: Path) -> None:
    def refuse() -> NoRuns:
        raise UsageError("no address", hint="none")

    with Ledger(tmp_path / "alerts.sqlite") as ledger:
        watcher = Watcher(
            open_reader=refuse, ledger=ledger, policy=policy(), dispatchers=(), complaints=Complaints(print)
        )
        with pytest.raises(UsageError):
            watcher.open()
    assert read_ledger(tmp_path / "alerts.sqlite")[0] == State()
