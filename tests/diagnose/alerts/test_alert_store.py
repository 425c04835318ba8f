"""What stands and what is unsent, in one file."""

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
from diagnose.alerts.alert_store import AlertStore, SpoiledNoticesError, Waiting, read_alert_store, readable_errors
from diagnose.alerts.check import Check, RunFindings, Sighting
from diagnose.alerts.life import Outcome, State, advance
from diagnose.alerts.notice import notice_text
from diagnose.alerts.rules import Policy
from diagnose.alerts.settings import default_state_file
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
    """One check, written down."""
    seen = tuple(Sighting(finding=one, has_known_time=True) for one in findings)
    run = RunFindings(run_id=RUN, attempt=0, step_s=1, sightings=seen)
    outcome = advance(state, Check(now_ns=START_NS + int(at_s * SECOND_NS), runs=(run,)), rules)
    alert_store.store(outcome)
    return outcome


def test_the_ledger_and_its_lock_are_private_under_any_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        with AlertStore(path) as alert_store:
            check(alert_store, State(), 0, STRAGGLER)
            assert modes_below(path.parent.parent) == {"folders": {0o700}, "files": {0o600}}
    finally:
        os.umask(before)


def test_what_was_stored_is_what_is_loaded(alert_store: AlertStore) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    assert alert_store.load() == outcome.state
    assert alert_store.waiting("log", 10) == [delivery.notice for delivery in outcome.deliveries]


def test_a_notice_leaves_the_outbox_of_the_hook_that_took_it(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    alert_store.taken("log", alert_store.waiting("log", 10))
    assert alert_store.num_waiting() == {"pager": 1}


def test_a_look_that_cannot_be_written_leaves_nothing_behind(alert_store: AlertStore) -> None:
    first = check(alert_store, State(), 0, STRAGGLER)
    twice = Outcome(state=State(next_number=9), deliveries=first.deliveries)  # the same number again
    with pytest.raises(sqlite3.IntegrityError):
        alert_store.store(twice)
    assert alert_store.load() == first.state
    assert alert_store.num_waiting() == {"log": 1, "pager": 1}


def test_a_repetition_replaces_the_unsent_one_before_it_and_nothing_else(alert_store: AlertStore) -> None:
    state = State()
    for at_s in range(0, 3600, 30):
        state = check(alert_store, state, at_s, STRAGGLER).state
    waiting = alert_store.waiting("log", 1000)
    assert [notice.repeated for notice in waiting] == [False, True]
    assert waiting[-1].number == state.next_number - 1


def test_an_end_replaces_the_repetition_before_it(alert_store: AlertStore) -> None:
    state = State()
    for at_s in range(0, 90, 30):
        state = check(alert_store, state, at_s, STRAGGLER).state
    for at_s in range(90, 180, 30):
        state = check(alert_store, state, at_s).state
    assert [str(notice.status) for notice in alert_store.waiting("log", 10)] == ["firing", "resolved"]


def test_a_second_watcher_is_told_so(alert_store: AlertStore, path: Path) -> None:
    with pytest.raises(UsageError, match="another watcher uses the alert state"):
        AlertStore(path)
    alert_store.close()
    AlertStore(path).close()


def test_the_lock_dies_with_its_process(path: Path) -> None:
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


def test_reading_disturbs_no_watcher(alert_store: AlertStore, path: Path) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER)
    state, waiting = read_alert_store(path)
    assert state.alerts == outcome.state.alerts
    assert waiting == dict.fromkeys(("log", "pager"), Waiting(count=1, since_ns=START_NS))
    check(alert_store, outcome.state, 5, STRAGGLER)


def test_how_long_the_oldest_notice_waits_is_known(alert_store: AlertStore, path: Path) -> None:
    state = check(alert_store, State(), 0, STRAGGLER).state
    check(alert_store, state, 300, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    assert read_alert_store(path)[1]["log"].since_ns == START_NS
    alert_store.taken("log", alert_store.waiting("log", 1))
    assert read_alert_store(path)[1]["log"].since_ns == START_NS + 300 * SECOND_NS


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"told_ns": 1}', "null"])
def test_a_notice_that_cannot_be_read_is_set_aside(alert_store: AlertStore, path: Path, body: str) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER, finding(Kind.DEAD_RANK, 9))
    spoil(path, body)
    assert read_alert_store(path)[1]["log"] == Waiting(count=2, since_ns=0)
    with pytest.raises(SpoiledNoticesError, match=r"`aside`.*: 1$"):
        alert_store.waiting("log", 10)
    assert alert_store.waiting("log", 10) == [outcome.deliveries[1].notice]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT hook, number, body FROM aside").fetchall() == [("log", 1, body)]


def spoil(path: Path, body: str) -> None:
    """Write ``body`` over the first notice that waits for the log."""
    with sqlite3.connect(path) as database:
        database.execute("UPDATE outbox SET body = ? WHERE hook = 'log' AND number = 1", (body,))


def test_a_notice_that_does_not_say_when_it_was_to_be_told_is_as_old_as_its_alert(
    alert_store: AlertStore, path: Path
) -> None:
    (delivery, *_) = check(alert_store, State(), 0, STRAGGLER).deliveries
    body = json.loads(notice_text(delivery.notice))
    del body["told_ns"]
    spoil(path, json.dumps(body))
    assert alert_store.waiting("log", 1) == [delivery.notice]


def test_names_in_stored_text_do_not_change(alert_store: AlertStore) -> None:
    outcome = check(alert_store, State(), 0, STRAGGLER)
    (alert, *_), (delivery, *_) = outcome.state.alerts.values(), outcome.deliveries
    stored = json.loads(alert_text(alert))
    assert {"told", "num_hosts_told", "told_ns", "held_back_by"} <= stored.keys()
    assert not {"sent_severity", "num_hosts_sent", "sent_ns", "suppressed_by"} & stored.keys()
    assert read_alert(alert_text(alert)) == alert
    assert "told_ns" in json.loads(notice_text(delivery.notice))


def test_whoever_reads_a_ledger_while_it_is_made_finds_it_empty(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        for number in range(40):
            path = tmp_path / f"{number}.sqlite"
            path.touch()
            read = [threads.submit(read_alert_store, path) for _ in range(8)]
            with AlertStore(path) as alert_store:
                assert alert_store.load() == State()
            assert [one.result() for one in read] == [(State(), {})] * 8


def test_where_no_watcher_ever_was_nothing_stands(tmp_path: Path) -> None:
    assert read_alert_store(tmp_path / "none.sqlite") == (State(), {})
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("dear diary, " * 100)
    for opened in (AlertStore, read_alert_store):
        with pytest.raises(UnreadableError, match="is not an alert state file"):
            opened(other)
    assert other.read_text() == "dear diary, " * 100


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(UnreadableError, match="another version"):
        AlertStore(path)


def test_a_place_that_cannot_be_written_is_a_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write the alert state"):
        AlertStore(tmp_path / "file" / "alerts.sqlite")


def test_what_waits_for_a_hook_that_is_gone_is_dropped(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    assert alert_store.drop_all_but(["log"]) == {"pager": 1}
    assert alert_store.num_waiting() == {"log": 1}


def test_what_waits_for_hooks_that_are_still_there_is_kept(alert_store: AlertStore) -> None:
    check(alert_store, State(), 0, STRAGGLER)
    assert alert_store.drop_all_but(name for name in ("pager", "log")) == {}
    assert alert_store.num_waiting() == {"log": 1, "pager": 1}


def test_the_usual_place_follows_the_environment() -> None:
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
def test_a_ledger_that_is_spoiled_is_a_users_error(path: Path, spoil_it: Callable[[Path], None]) -> None:
    with AlertStore(path) as alert_store:
        check(alert_store, State(), 0, STRAGGLER)
    spoil_it(path)
    with pytest.raises(UnreadableError) as listed:
        read_alert_store(path)
    with pytest.raises(UnreadableError) as started:
        start(path)
    assert {listed.value.hint, started.value.hint} == {"move it away, or use another file: --state FILE"}


def start(path: Path) -> None:
    """What a watcher does with its alert_store first."""
    with AlertStore(path) as alert_store:
        alert_store.drop_all_but(["log"])
        alert_store.load()


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE])
def test_a_full_disk_is_told_as_such_and_costs_nobody_the_file(path: Path, code: int) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = code
    with pytest.raises(UnreadableError) as raised, readable_errors(path):
        raise error
    assert "cannot be used: disk I/O error" in raised.value.message
    assert "the saved alerts are kept" in raised.value.hint
