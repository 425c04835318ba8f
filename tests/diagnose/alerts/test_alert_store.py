"""The alert store: active alerts and unsent notices in one file."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from diagnose.alerts.alert import alert_text, read_alert
from diagnose.alerts.alert_file import SpoiledRecordsError
from diagnose.alerts.alert_store import AlertStore, Waiting, read_alert_store, readable_errors
from diagnose.alerts.check import Check
from diagnose.alerts.life import Outcome, State, advance
from diagnose.alerts.notice import notice_text
from diagnose.alerts.rules import Policy
from diagnose.alerts.settings import default_state_file
from diagnose.alerts.sightings import RunFindings, Sighting
from diagnose.findings import Finding, Kind
from telemetry.errors import UnreadableError, UsageError
from tests.diagnose.alerts.made_checks import RUN, SECOND_NS, START_NS, finding, policy
from tests.telemetry.files.test_private_files import modes_below

STRAGGLER = finding(Kind.COMPUTE_STRAGGLER, 5)
RULES = policy(hooks=("log", "pager"), for_s=0, keep_firing_for_s=60, resend_s=30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "alerts.sqlite"


@pytest.fixture
def alert_store(path: Path) -> Iterator[AlertStore]:
    with AlertStore(path) as opened:
        yield opened


def check(alert_store: AlertStore, state: State, at_s: float, *findings: Finding, rules: Policy = RULES) -> Outcome:
    """Store the outcome of one check."""
    seen = tuple(Sighting(finding=one, has_known_time=True) for one in findings)
    run = RunFindings(run_id=RUN, attempt=0, step_s=1, sightings=seen)
    outcome = advance(state, Check(now_ns=START_NS + int(at_s * SECOND_NS), runs=(run,)), rules)
    alert_store.store(outcome)
    return outcome


def test_alert_store_files_and_folders_are_private_when_the_umask_is_zero(path: Path) -> None:
    before = os.umask(0)
    try:
        with AlertStore(path) as alert_store:
            check(alert_store, State(), 0, STRAGGLER)
            assert modes_below(path.parent.parent) == {"folders": {0o700}, "files": {0o600}}
    finally:
        os.umask(before)


def test_alert_store_loads_the_stored_state_and_waiting_notices(alert_store: AlertStore) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    assert alert_store.load() == outcome.state
    assert alert_store.waiting("log", 10) == [delivery.notice for delivery in outcome.deliveries]


def test_accepted_notice_leaves_only_the_outbox_of_the_accepting_hook(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    alert_store.taken("log", alert_store.waiting("log", 10))
    assert alert_store.num_waiting() == {"pager": 1}


def test_failed_store_of_a_check_changes_neither_state_nor_outbox(alert_store: AlertStore) -> None:
    first = check(alert_store, State(), 0, STRAGGLER)
    twice = Outcome(state=State(next_number=9), deliveries=first.deliveries)  # the same number again
    with pytest.raises(sqlite3.IntegrityError):
        alert_store.store(twice)
    assert alert_store.load() == first.state
    assert alert_store.num_waiting() == {"log": 1, "pager": 1}


def test_repeated_notice_replaces_only_the_previous_unsent_repetition(alert_store: AlertStore) -> None:
    state = State()
    for at_s in range(0, 3600, 30):
        state = check(alert_store, state, at_s, STRAGGLER).state
    waiting = alert_store.waiting("log", 1000)
    assert [notice.repeated for notice in waiting] == [False, True]
    assert waiting[-1].number == state.next_number - 1


def test_resolved_notice_replaces_the_previous_unsent_repetition(alert_store: AlertStore) -> None:
    state = State()
    for at_s in range(0, 90, 30):
        state = check(alert_store, state, at_s, STRAGGLER).state
    for at_s in range(90, 180, 30):
        state = check(alert_store, state, at_s).state
    assert [str(notice.status) for notice in alert_store.waiting("log", 10)] == ["firing", "resolved"]


def test_alert_store_rejects_a_second_watcher_until_the_first_one_closes(alert_store: AlertStore, path: Path) -> None:
    with pytest.raises(UsageError, match="another watcher uses the alert state"):
        AlertStore(path)
    alert_store.close()
    AlertStore(path).close()


def test_alert_store_lock_is_released_when_its_process_is_killed(path: Path) -> None:
    code = (
        "from pathlib import Path; from diagnose.alerts.alert_store import AlertStore; "
        f"held = AlertStore(Path({str(path)!r})); print(1, flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(UsageError):
            AlertStore(path)
        other.kill()
    AlertStore(path).close()


def test_alert_store_can_be_read_while_a_watcher_uses_it(alert_store: AlertStore, path: Path) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER)
    state, waiting = read_alert_store(path)
    assert state.alerts == outcome.state.alerts
    assert waiting == dict.fromkeys(("log", "pager"), Waiting(count=1, since_ns=START_NS))
    check(alert_store, outcome.state, 5, STRAGGLER)


def test_read_alert_store_returns_the_time_of_the_oldest_waiting_notice(alert_store: AlertStore, path: Path) -> None:
    state = check(alert_store, State(), 0, STRAGGLER).state
    check(alert_store, state, 300, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    assert read_alert_store(path)[1]["log"].since_ns == START_NS
    alert_store.taken("log", alert_store.waiting("log", 1))
    assert read_alert_store(path)[1]["log"].since_ns == START_NS + 300 * SECOND_NS


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"told_ns": 1}', "null"])
def test_unreadable_notice_is_moved_to_the_aside_table(alert_store: AlertStore, path: Path, body: str) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    spoil(path, body)
    assert read_alert_store(path)[1]["log"] == Waiting(count=2, since_ns=0)
    with pytest.raises(SpoiledRecordsError, match=r"`aside`.*: 1$"):
        alert_store.waiting("log", 10)
    assert alert_store.waiting("log", 10) == [outcome.deliveries[1].notice]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT hook, number, body FROM aside").fetchall() == [("log", 1, body)]


def spoil(path: Path, body: str) -> None:
    """Replace the body of the first notice that waits for the hook ``log``."""
    with sqlite3.connect(path) as database:
        database.execute("UPDATE outbox SET body = ? WHERE hook = 'log' AND number = 1", (body,))


def test_stored_notice_without_told_ns_gets_the_start_time_of_its_alert(alert_store: AlertStore, path: Path) -> None:
    (delivery, *_) = check(alert_store, State(), 0, STRAGGLER).deliveries
    body = json.loads(notice_text(delivery.notice))
    del body["told_ns"]
    spoil(path, json.dumps(body))
    assert alert_store.waiting("log", 1) == [delivery.notice]


def test_field_names_in_stored_alerts_and_notices_do_not_change(alert_store: AlertStore) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER)
    (alert, *_), (delivery, *_) = outcome.state.alerts.values(), outcome.deliveries
    stored = json.loads(alert_text(alert))
    assert {"told", "num_hosts_told", "told_ns", "held_back_by"} <= stored.keys()
    assert not {"sent_severity", "num_hosts_sent", "sent_ns", "suppressed_by"} & stored.keys()
    assert read_alert(alert_text(alert)) == alert
    assert "told_ns" in json.loads(notice_text(delivery.notice))


def test_alert_store_reads_as_empty_while_it_is_being_created(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for number in range(40):
            path = tmp_path / f"{number}.sqlite"
            path.touch()
            read = [threads.submit(read_alert_store, path) for _ in range(8)]
            with AlertStore(path) as alert_store:
                assert alert_store.load() == State()
            assert [one.result() for one in read] == [(State(), {})] * 8


def test_missing_alert_state_file_reads_as_empty_and_is_not_created(tmp_path: Path) -> None:
    assert read_alert_store(tmp_path / "none.sqlite") == (State(), {})
    assert not list(tmp_path.iterdir())


def test_file_that_is_not_an_alert_state_is_rejected_and_not_changed(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("dear diary, " * 100)
    for opened in (AlertStore, read_alert_store):
        with pytest.raises(UnreadableError, match="is not an alert state file"):
            opened(other)
    assert other.read_text() == "dear diary, " * 100


def test_alert_state_file_of_another_version_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UnreadableError, match="another version"):
        AlertStore(path)


def test_alert_store_raises_a_usage_error_when_its_path_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write the alert state"):
        AlertStore(tmp_path / "file" / "alerts.sqlite")


def test_waiting_notices_for_a_removed_hook_are_dropped(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    assert alert_store.drop_all_but(["log"]) == {"pager": 1}
    assert alert_store.num_waiting() == {"log": 1}


def test_waiting_notices_for_existing_hooks_are_kept(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    assert alert_store.drop_all_but(name for name in ("pager", "log")) == {}
    assert alert_store.num_waiting() == {"log": 1, "pager": 1}


def test_default_state_file_follows_xdg_state_home_only_if_that_is_absolute() -> None:
    assert default_state_file({"XDG_STATE_HOME": "/var/state"}) == Path("/var/state/rankscope/alerts.sqlite")
    at_home = Path(os.path.expanduser("~")) / ".local/state/rankscope/alerts.sqlite"
    assert default_state_file({"XDG_STATE_HOME": "not/absolute"}) == default_state_file({}) == at_home


def spoiled_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


def altered(sql: str) -> Callable[[Path], None]:
    def alter(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(sql)

    return alter


@pytest.mark.parametrize(
    "spoil_it",
    [
        spoiled_pages,
        altered("UPDATE alerts SET body = '{}'"),
        altered("UPDATE alerts SET body = 'null'"),
        altered("UPDATE alerts SET body = json_set(body, '$.labels', json('{}'))"),
        altered("UPDATE alerts SET body = CAST(X'ff22' AS TEXT)"),
        altered("DROP TABLE alerts"),
        altered("DROP TABLE outbox"),
    ],
)
def test_corrupt_alert_store_raises_an_unreadable_error_with_a_hint(
    path: Path, spoil_it: Callable[[Path], None]
) -> None:
    with AlertStore(path) as alert_store:
        check(alert_store, State(), 0, STRAGGLER)
    spoil_it(path)
    with pytest.raises(UnreadableError) as listed:
        read_alert_store(path)
    with pytest.raises(UnreadableError) as started:
        start(path)
    assert {listed.value.hint, started.value.hint} == {"move it away, or use another file: --state FILE"}


def start(path: Path) -> None:
    """The first steps of a watcher with its alert store."""
    with AlertStore(path) as alert_store:
        alert_store.drop_all_but(["log"])
        alert_store.load()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE])
def test_disk_write_error_is_reported_with_a_hint_that_saved_alerts_are_kept(path: Path, code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with pytest.raises(UnreadableError) as raised, readable_errors(path):
        raise error
    assert "cannot be used: disk I/O error" in raised.value.message
    assert "the saved alerts are kept" in raised.value.hint
