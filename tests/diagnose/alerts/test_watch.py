"""The watcher between two checks: how long it waits, and its behavior without an answer or a writable disk."""

import io
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from diagnose.alerts.alert_store import AlertStore, Waiting, read_alert_store
from diagnose.alerts.life import UNKNOWN_S, State
from diagnose.alerts.listing import state_object, state_text
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.quiet import Quiet
from diagnose.alerts.watch import BURST_S, FOLLOW_S, MAX_SHARE, NEWS_EVERY_S, Watcher, watch
from diagnose.findings import Kind
from diagnose.model.run_state import local_time
from telemetry.errors import UnreachableError, UnreadableError, UsageError
from telemetry.stores.interface import Query, StoreReader
from telemetry.stores.queries import Runs
from telemetry.tables import FINDING_ACTIONS
from telemetry.wire.client import CollectorClient
from tests.diagnose.alerts.made_checks import START_NS, Watched, finding, policy, quick
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert
from ui.cli.commands.alerts import alerts_app


class NoRuns:
    """A store without runs. It does not answer while ``silent``, and fails with ``broken`` if that is set."""

    def __init__(self) -> None:
        self.silent = False
        self.broken: Exception | None = None
        self.opened = 0

    def read(self, query: Query) -> pa.Table:
        if self.silent:
            raise UnreachableError("nobody there", hint="none")
        if self.broken:
            raise self.broken
        return pa.table({})

    @contextmanager
    def open(self) -> Iterator["NoRuns"]:
        self.opened += 1
        yield self


class Scene:
    def __init__(self, path: Path, state: State) -> None:
        self.said: list[str] = []
        self.reader = NoRuns()
        self.alert_store = AlertStore(path)
        self.now_ns = START_NS + 5_000_000_000
        self.watcher = Watcher(
            open_reader=self.reader.open,
            alert_store=self.alert_store,
            policy=policy(),
            dispatchers=(),
            error_reports=ErrorReports(self.said.append),
            clock_ns=lambda: self.now_ns,
        )
        self.watcher.state = state


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path / "alerts.sqlite", State())
    yield made
    made.alert_store.close()


def firing() -> State:
    watched = Watched(quick())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    return watched.state


def test_acknowledgement_applies_even_if_the_clock_of_the_watcher_is_ahead(scene: Scene) -> None:
    (alert,) = firing().alerts.values()
    at_ns = alert.began_ns - 3600 * 10**9
    row = {"fingerprint": alert.fingerprint, "raised_ns": alert.raised_ns, "at_ns": at_ns, "action_id": "1"}
    more = {"action": "acknowledge", "who": "Ada", "text": "", "until_ns": 0}
    scene.watcher.state = firing()
    with memory_store() as store:
        insert(store, "finding_actions", pa.Table.from_pylist([row | more], schema=FINDING_ACTIONS), run_id="gpt")
        scene.reader.read = StoreReader(store).read  # type: ignore[method-assign]
        scene.watcher.check(5)
    (alert,) = scene.watcher.state.alerts.values()
    assert alert.quiet == Quiet(acknowledged=True, who="Ada")


def pending(kind: Kind) -> State:
    watched = Watched(policy())
    watched.sees(finding(kind, 5))
    return watched.state


def test_watcher_due_time_is_the_time_until_its_pending_alert_may_fire(scene: Scene) -> None:
    assert scene.watcher.due_s() == math.inf
    scene.watcher.state = pending(Kind.COMPUTE_STRAGGLER)
    assert scene.watcher.due_s() == 2
    scene.now_ns += 1_900_000_000
    assert scene.watcher.due_s() == 0.5


def test_unreachable_store_and_its_recovery_are_each_reported_once(scene: Scene) -> None:
    scene.watcher.state = firing()
    scene.reader.silent = True
    for _ in range(50):
        scene.now_ns += 10_000_000_000
        scene.watcher.check(5)
    assert all(alert.is_alive for alert in scene.watcher.state.alerts.values())
    scene.reader.silent = False
    scene.watcher.check(5)
    scene.watcher.check(5)
    assert scene.said == ["nobody there; alerts do not change until the store answers", "the store answers again"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (ZeroDivisionError("oops"), "ZeroDivisionError: oops"),
        (KeyError("num_ranks"), "KeyError: 'num_ranks'"),
        (UnreadableError("no such table", hint="none"), "no such table"),
    ],
)
def test_store_error_resolves_no_alert_and_is_reported_once(scene: Scene, broken: Exception, said: str) -> None:
    scene.watcher.state = firing()
    scene.reader.broken = broken
    for _ in range(3):
        assert scene.watcher.news() in (None, ())
        scene.watcher.check(5)
    assert all(alert.is_alive for alert in scene.watcher.state.alerts.values())
    scene.reader.broken = None
    scene.watcher.check(5)
    assert scene.said == [f"{said}; alerts do not change until the store answers", "the store answers again"]


def test_news_is_none_when_its_query_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(reader: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("diagnose.alerts.check.RunChecker.news", lambda self, reader: trips(reader))
    assert scene.watcher.news() is None


def test_error_while_advancing_alerts_is_reported_once_and_does_not_stop_the_watcher(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.alerts.watch.advance", lambda *_: 1 / 0)
    scene.watcher.check(5)
    scene.watcher.check(5)
    assert scene.said == ["alerts cannot be saved and are delayed: ZeroDivisionError: division by zero"]


class ManualTime(threading.Event):
    """A clock that advances when the watcher waits or checks. It ends the watch at ``end_s``."""

    def __init__(self, end_s: float) -> None:
        super().__init__()
        self.now_s = 0.0
        self.end_s = end_s

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.end_s:
            self.set()

    def wait(self, timeout: float | None = None) -> bool:
        self.passes(timeout or 0.0)
        return self.is_set()


class Timed(Watcher):
    """A watcher whose checks take ``took_s`` of a manual time. News arrives at each time of ``news_s``."""

    def __init__(self, time: ManualTime, took_s: float, news_s: list[float]) -> None:
        self.state = State()
        self._clock_ns = lambda: 0
        self._time, self._took_s, self._news_s = time, took_s, news_s
        self.checks_s: list[float] = []
        self.pending_s = math.inf
        """From this time on, an alert is pending. It may fire one second later."""

    def due_s(self) -> float:
        return 1.0 if self._time.now_s >= self.pending_s else math.inf

    def news(self) -> int:
        return sum(at_s <= self._time.now_s for at_s in self._news_s)

    def check(self, period_s: float) -> None:
        self.checks_s.append(self._time.now_s)
        self._time.passes(self._took_s)


def checks_s(
    *, took_s: float, news_s: list[float], every_s: float = 30, end_s: float = 600, pending_s: float = math.inf
) -> list[float]:
    """The start times of the checks of a watcher."""
    time = ManualTime(end_s)
    watcher = Timed(time, took_s, news_s)
    watcher.pending_s = pending_s
    watch(watcher, every_s, time, clock_s=lambda: time.now_s)
    return watcher.checks_s


def test_a_slow_store_is_checked_less_often() -> None:
    assert checks_s(took_s=40, news_s=[])[1] == 40 + MAX_SHARE * 40


@pytest.mark.parametrize("took_s", [0.1, 8])
def test_pending_alert_is_checked_as_soon_as_it_may_fire_however_long_a_check_takes(took_s: float) -> None:
    _, seen_s, again_s = checks_s(took_s=took_s, news_s=[], pending_s=30)[:3]
    assert again_s - seen_s - took_s == pytest.approx(1)


@pytest.mark.parametrize("took_s", [0.5, 8])
def test_checks_stay_within_their_share_of_time_when_an_alert_is_always_pending(took_s: float) -> None:
    begun_s = checks_s(took_s=took_s, news_s=[], pending_s=0)
    assert took_s * len(begun_s) <= 600 / (1 + MAX_SHARE) + BURST_S + 2 * took_s


def test_the_first_news_after_a_pause_is_checked_at_once() -> None:
    usual_s = checks_s(took_s=4, news_s=[])
    assert usual_s[:4] == [0, 34, 68, 102]
    with_news_s = checks_s(took_s=4, news_s=[75.5])
    assert 75.5 <= with_news_s[3] <= 75.5 + NEWS_EVERY_S


@pytest.mark.parametrize("took_s", [0.01, 0.5, 2, 4, 20])
def test_checks_stay_within_their_share_of_time_when_news_never_stops(took_s: float) -> None:
    begun_s = checks_s(took_s=took_s, news_s=[0.1 * number for number in range(6000)])
    for end_s in (100, 300, 600):
        looked_s = took_s * sum(one < end_s for one in begun_s)
        assert looked_s <= end_s / (1 + MAX_SHARE) + BURST_S + 2 * took_s
    assert len(begun_s) <= (600 + (1 + MAX_SHARE) * BURST_S) / NEWS_EVERY_S


def test_news_is_followed_by_more_checks_after_pauses_that_double() -> None:
    begun_s = checks_s(took_s=1, news_s=[35])
    assert 35 <= begun_s[2] <= 35 + NEWS_EVERY_S
    follows = [later - first - 1 for first, later in pairwise(begun_s[2:6])]
    assert follows == pytest.approx([FOLLOW_S, 2 * FOLLOW_S, 4 * FOLLOW_S])


def test_delayed_news_is_checked_before_the_regular_interval_ends() -> None:
    begun_s = checks_s(took_s=4, news_s=[0.5 * number for number in range(70, 400)], every_s=60)
    waited_s = [later - first - 4 for first, later in pairwise(begun_s)]
    at_once = int((1 + MAX_SHARE) * BURST_S / (MAX_SHARE * 4))
    assert max(waited_s[1:at_once]) <= FOLLOW_S
    assert FOLLOW_S < max(waited_s[at_once + 1 : at_once + 7]) < 60


def test_alert_is_resolved_only_after_the_change_can_be_saved(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.watcher.state = firing()
    scene.watcher.check(5)  # the run is over: its alert is absent from now on
    scene.now_ns += round(UNKNOWN_S * 1e9)  # and the store has not known it for UNKNOWN_S

    def full(outcome: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(scene.alert_store, "store", full)
        scene.watcher.check(5)
        scene.watcher.check(5)
    assert [str(alert.phase) for alert in scene.watcher.state.alerts.values()] == ["firing"]
    scene.watcher.check(5)
    assert [str(alert.phase) for alert in scene.watcher.state.alerts.values()] == ["resolved"]
    assert scene.alert_store.num_waiting() == {"log": 1}
    assert [line.split(":")[0] for line in scene.said] == [
        "alerts cannot be saved and are delayed",
        "alerts are saved again",
    ]


def test_alert_list_shows_waiting_notifications_per_hook_with_their_age(tmp_path: Path) -> None:
    waiting = {"pager": Waiting(count=3, since_ns=START_NS), "chat": Waiting(count=1, since_ns=0)}
    text = str(state_text(State(), waiting, START_NS + 7_200_000_000_000))
    waits = "1 notification waits for hook chat; 3 notifications wait for hook pager, the oldest for 2.0 h"
    assert text == f"no alerts; {waits}"
    told = state_object(State(), waiting)
    assert told["waiting"] == {"pager": 3, "chat": 1}
    assert told["waiting_since_ns"] == {"pager": START_NS, "chat": 0}


def test_watcher_open_raises_a_usage_error_when_the_store_address_is_invalid(tmp_path: Path) -> None:
    def refuse() -> NoRuns:
        raise UsageError("no address", hint="none")

    with AlertStore(tmp_path / "alerts.sqlite") as alert_store:
        watcher = Watcher(
            open_reader=refuse,
            alert_store=alert_store,
            policy=policy(),
            dispatchers=(),
            error_reports=ErrorReports(print),
        )
        with pytest.raises(UsageError):
            watcher.open()
    assert read_alert_store(tmp_path / "alerts.sqlite")[0] == State()


class Foreign(NoRuns):
    """A store that answers every query with the same wrong rows."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__()
        self.rows = rows

    def read(self, query: Query) -> pa.Table:
        return self.rows


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"x": [1]}),
        pa.table({"run_id": ["a"], "attempt": [0], "num_ranks": [2], "last_ns": ["now"]}),
        pa.table({"run_id": [{"a": 1}], "attempt": [0], "num_ranks": [2], "last_ns": [0]}),
    ],
)
def test_answer_with_wrong_rows_is_reported_once_and_does_not_stop_the_watcher(scene: Scene, rows: pa.Table) -> None:
    scene.reader = Foreign(rows)
    watcher = Watcher(
        open_reader=scene.reader.open,
        alert_store=scene.alert_store,
        policy=policy(),
        dispatchers=(),
        error_reports=ErrorReports(scene.said.append),
    )
    watcher.open()
    watcher.check(5)
    watcher.check(5)
    watcher.news()
    assert len(scene.said) == 1
    assert scene.said[0].endswith("alerts do not change until the store answers")


class Garbage(BaseHTTPRequestHandler):
    """Sends an answer that is marked as gzip but is not gzip."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", "7")
        self.end_headers()
        self.wfile.write(b"garbage")

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


def test_collector_client_raises_an_unreachable_error_for_an_invalid_gzip_answer() -> None:
    with HTTPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.handle_request).start()
        with CollectorClient(f"http://127.0.0.1:{server.server_port}") as client, pytest.raises(UnreachableError):
            client.read(Runs())


def test_alert_list_prints_one_line_per_alert_without_terminal_control_characters() -> None:
    state = firing()
    (alert,) = state.alerts.values()
    labels = {**alert.labels, "run_id": "mon\x1b[2J\x9bday" + "x" * 100}
    state = State(alerts={alert.fingerprint: replace(alert, labels=labels)})
    said = io.StringIO()
    Console(file=said, width=80, soft_wrap=True).print(state_text(state, {}, START_NS))
    head, line, count = said.getvalue().splitlines()
    assert head.split()[-1] == "what"
    assert line.isprintable()
    since = f"{local_time(alert.since_ns)}  {alert.fingerprint}"
    assert line.endswith(f"x/0  host=gpu-00 rank=5  {since}  dead-rank of [5] | 3.0 s lost so far | look at it")
    assert count == "1 firing"


def test_alerts_run_rejects_an_invalid_threshold_variable_before_it_creates_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_FLAPS", "abc")
    answer = CliRunner().invoke(alerts_app, ["run", "--state", str(tmp_path / "alerts.sqlite")])
    assert isinstance(answer.exception, UsageError)
    assert "RANKSCOPE_FLAPS is 'abc'" in answer.exception.message
    assert not list(tmp_path.iterdir())


def test_alerts_list_rejects_an_empty_state_path() -> None:
    answer = CliRunner().invoke(alerts_app, ["list", "--state", ""])
    assert isinstance(answer.exception, UsageError)
    assert "--state is" in answer.exception.message
