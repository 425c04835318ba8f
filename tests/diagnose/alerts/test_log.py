"""The findings log: each change that the watcher saves arrives once, also after a kill or a refusal."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from diagnose.alerts import log
from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.life import Outcome
from diagnose.alerts.listing import state_text
from diagnose.alerts.log import LogSender
from diagnose.alerts.log_text import log_text
from diagnose.alerts.logged import log_page
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.onset import Onset
from diagnose.findings import Kind, Severity
from diagnose.model.run_state import local_time
from telemetry.errors import RefusedRowsError, UnreachableError
from telemetry.finding_log import DAY_S
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import FindingCount, Findings
from telemetry.stores.queries.findings import FindingFilter
from telemetry.tables import FINDINGS, TABLES
from telemetry.wire.client import CollectorClient
from tests.diagnose.alerts.made_checks import RUN, START_NS, Watched, finding, quick
from tests.telemetry.served import collecting


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


def an_incident() -> Watched:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5, host="gpu-01"))
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 4, 5, host="gpu-01", severity=Severity.CRITICAL))
    watched.quietly(120)
    return watched


def saved(path: Path, watched: Watched) -> AlertStore:
    store = AlertStore(path)
    store.store(Outcome(state=watched.state, deliveries=(), log=tuple(watched.log)))
    return store


def test_incident_has_one_log_row_each_for_raised_worse_and_resolved() -> None:
    rows = an_incident().log
    assert [(row["state"], row["severity"]) for row in rows] == [
        ("raised", "warning"),
        ("worse", "critical"),
        ("resolved", "critical"),
    ]
    assert len({(row["fingerprint"], row["raised_ns"]) for row in rows}) == 1


def test_finding_is_logged_as_raised_again_when_the_clock_is_set_back_by_days() -> None:
    watched = Watched(quick(keep_firing_for_s=60))
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), after_s=5 * 86_400)
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), after_s=-4 * 86_400)
    early, late = watched.log
    assert (early["state"], late["state"], late["raised_ns"]) == ("raised", "raised", late["at_ns"])
    assert late["raised_ns"] < early["raised_ns"]
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), after_s=-3600)
    assert len(watched.log) == 2


def test_a_pending_alert_is_not_in_the_log() -> None:
    watched = Watched(quick(for_s=60))
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5))
    watched.quietly(300)
    assert watched.log == []


def test_log_rows_are_stored_once_and_leave_the_alert_store_when_the_sender_is_killed(
    collector: CollectorClient, tmp_path: Path
) -> None:
    watched, path = an_incident(), tmp_path / "alerts.sqlite"
    saved(path, watched).close()
    errors: list[str] = []
    with AlertStore(path) as store:
        waiting = store.log_waiting(10)
        assert list(waiting.values()) == watched.log
        LogSender(_Forgetful(store), ErrorReports(errors.append)).send(collector)  # killed before it deleted the rows
        LogSender(store, ErrorReports(errors.append)).send(collector)
        assert store.log_waiting(10) == {}
    (row,) = collector.read(Findings()).to_pylist()
    assert (row["run_id"], row["state"], row["severity"], row["hosts"]) == (RUN, "resolved", "critical", "gpu-01")
    assert row["ranks"] == "4-5"
    assert collector.read(FindingCount())["findings"].to_pylist() == [1]
    assert errors == []


@pytest.mark.parametrize("at_ns", [0, START_NS - 10**9])
def test_list_and_log_of_alerts_show_one_onset_and_one_fingerprint(
    at_ns: int, collector: CollectorClient, tmp_path: Path
) -> None:
    """Later checks examine earlier steps, so the onset becomes earlier while the alert fires."""
    watched, now_ns = Watched(quick(for_s=60)), time.time_ns()
    for step in (600, 580, 560):
        onset = Onset(step=step, at_ns=at_ns, is_exact=False)
        watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), after_s=60, onset=onset)
    with saved(tmp_path / "alerts.sqlite", watched) as store:
        LogSender(store, ErrorReports(print)).send(collector)
    listed = str(state_text(watched.state, {}, now_ns)).splitlines()[:2]
    logged = str(log_text(log_page(collector, FindingFilter(), None, now_ns), now_ns, first=1)).splitlines()[:2]
    (alert,) = watched.state.alerts.values()
    for text in (*_cells_below(("since", "fingerprint"), *listed), *_cells_below(("since", "fingerprint"), *logged)):
        assert text in (local_time(alert.since_ns), alert.fingerprint)
    assert all("since step 560 or earlier" in line for line in (listed[1], logged[1]))


def _cells_below(names: tuple[str, ...], head: str, line: str) -> list[str]:
    """The cells of the columns ``names``, which are separated by two blanks."""
    return [line[head.index(name) :].partition("  ")[0] for name in names]


def test_onset_step_is_logged_without_its_time_when_that_time_is_days_in_the_future(
    collector: CollectorClient, tmp_path: Path
) -> None:
    watched = Watched(quick())
    onset = Onset(step=600, at_ns=time.time_ns() + 3 * DAY_S * 10**9, is_exact=True)
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5), onset=onset)
    (alert,) = watched.state.alerts.values()
    assert alert.since_ns == alert.began_ns
    with saved(tmp_path / "alerts.sqlite", watched) as store:
        LogSender(store, ErrorReports(print)).send(collector)
    (row,) = collector.read(Findings()).to_pylist()
    assert (row["onset_step"], row["onset_ns"]) == (600, 0)


class _Forgetful:
    """A queue whose process is killed after it sent the rows."""

    def __init__(self, store: AlertStore) -> None:
        self._store = store
        self._asked = 0

    def log_waiting(self, most: int) -> dict[int, dict[str, object]]:
        self._asked += 1
        return self._store.log_waiting(most) if self._asked == 1 else {}

    def log_taken(self, numbers: object) -> None:
        """The deletion does not reach the disk."""


class Answering:
    """A collector whose requests with rows fail with the given error."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def post(self, table: str, rows: pa.Table) -> object:
        if self.error and rows.num_rows:
            raise self.error
        return None


@pytest.mark.parametrize(
    ("error", "num_waiting", "said"),
    [
        (
            UnreachableError("gone", hint="none"),
            3,
            "the findings log does not receive changes, so they are kept and retried: gone",
        ),
        (
            RefusedRowsError("too odd", hint="none"),
            0,
            "the collector rejects rows of the findings log, so they are dropped (3): too odd",
        ),
    ],
)
def test_log_rows_wait_for_an_unreachable_collector_and_are_dropped_if_it_rejects_them(
    tmp_path: Path, error: Exception, num_waiting: int, said: str
) -> None:
    collector, errors = Answering(), []
    with saved(tmp_path / "alerts.sqlite", an_incident()) as store:
        sender = LogSender(store, ErrorReports(errors.append))
        collector.error = error
        for _ in range(2):
            sender.send(collector)
        assert len(store.log_waiting(10)) == num_waiting
        assert errors == [said]
        collector.error = None
        sender.send(collector)
        assert store.log_waiting(10) == {}


def test_unreadable_log_rows_are_moved_aside_with_one_message_and_the_others_are_sent(
    collector: CollectorClient, tmp_path: Path
) -> None:
    watched, path, errors = an_incident(), tmp_path / "alerts.sqlite", list[str]()
    of_another_type = json.dumps({**watched.log[0], "seconds_lost": "three"}).encode()
    bodies = [b"{", b"[]", b"{}", b"\xff\xfe", b"7", of_another_type]
    with saved(path, watched) as store:
        with closing(sqlite3.connect(path)) as database, database:
            database.executemany("INSERT INTO log VALUES (?, CAST(? AS TEXT))", enumerate(bodies, 101))
            database.execute("UPDATE log SET number = 200 WHERE number = 3")  # now after the unreadable rows
        sender = LogSender(store, ErrorReports(errors.append))
        for _ in range(2):
            sender.send(collector)
        assert store.log_waiting(10) == {}
    where = "the table `aside` of the alert state"
    assert errors == [f"findings log: unreadable rows are moved to {where}: 101, 102, 103, 104, 105, 106"]
    with closing(sqlite3.connect(path)) as database:
        aside = database.execute("SELECT hook, number, CAST(body AS BLOB) FROM aside").fetchall()
    assert aside == [("findings log", number, body) for number, body in enumerate(bodies, 101)]
    assert collector.read(Findings())["state"].to_pylist() == ["resolved"]


def test_log_row_rejected_by_the_collector_is_dropped_and_the_others_are_stored(
    collector: CollectorClient, tmp_path: Path
) -> None:
    watched, errors = an_incident(), list[str]()
    watched.log[1]["seconds_lost"] = float("nan")
    with saved(tmp_path / "alerts.sqlite", watched) as store:
        LogSender(store, ErrorReports(errors.append)).send(collector)
        assert store.log_count() == 0
    assert len(errors) == 1
    assert errors[0].startswith("the collector rejects rows of the findings log, so they are dropped (1): ")
    assert collector.read(Findings())["state"].to_pylist() == ["resolved"]


@pytest.mark.parametrize("known", [None, FINDINGS.remove(len(FINDINGS) - 1)], ids=["no table", "a column less"])
def test_rows_wait_until_an_older_collector_is_upgraded(
    embedded: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: pa.Schema | None
) -> None:
    errors = list[str]()
    with saved(tmp_path / "alerts.sqlite", an_incident()) as store:
        sender = LogSender(store, ErrorReports(errors.append))
        with monkeypatch.context() as older, collecting(embedded) as collector:
            if known is None:
                older.delitem(TABLES, "findings")
            else:
                older.setitem(TABLES, "findings", known)
            for _ in range(3):
                sender.send(collector)
        assert store.log_count() == 3
        (waits,) = errors
        assert "so they are kept and retried: " in waits
        assert "upgrade the collector" in waits
        with collecting(embedded) as collector:
            sender.send(collector)
            assert collector.read(Findings())["state"].to_pylist() == ["resolved"]
        assert store.log_count() == 0
    assert errors == [waits, "the findings log receives changes again"]


def test_oldest_log_rows_are_dropped_when_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MOST_WAITING", 2)
    collector, errors = Answering(), list[str]()
    collector.error = UnreachableError("gone", hint="none")
    with saved(tmp_path / "alerts.sqlite", an_incident()) as store:
        sender = LogSender(store, ErrorReports(errors.append))
        for _ in range(2):
            sender.send(collector)
        assert [row["state"] for row in store.log_waiting(10).values()] == ["worse", "resolved"]
        collector.error = None
        sender.send(collector)
    assert errors == [
        "the findings log does not receive changes, so they are kept and retried: gone",
        "more than 2 rows of the findings log wait: the oldest ones are dropped",
        "the findings log receives changes again; rows that were dropped: 1",
    ]


def test_log_rows_are_discarded_when_there_is_no_collector(tmp_path: Path) -> None:
    with saved(tmp_path / "alerts.sqlite", an_incident()) as store:
        LogSender(store, ErrorReports(print)).send(object())
        assert store.log_waiting(10) == {}
