"""Which runs are checked, and which of their findings are current."""

import time

import pytest

from diagnose.alerts import check as checking
from diagnose.alerts.check import Check, RunChecker
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.sightings import RunFindings
from telemetry.host_metrics import Happening
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, StoreReader
from telemetry.stores.queries import OperationColumns, Ranks, Steps
from tests.diagnose.alerts.made_store import put_beats, put_run
from tests.telemetry.made_rows import insert, made

SLOW = "slow:rank=5,factor=1.4"


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    return embedded


def check(store: EmbeddedStore, said: list[str] | None = None, *, after_s: float = 0) -> Check:
    error_reports = ErrorReports((said if said is not None else []).append)
    checker = RunChecker(error_reports, clock_ns=lambda: time.time_ns() + int(after_s * 1e9))
    return checker.check(StoreReader(store), period_s=5)


def named(run: RunFindings) -> set[tuple[str, tuple[int, ...]]]:
    return {(str(one.finding.kind), tuple(one.finding.ranks)) for one in run.sightings}


def test_check_reports_a_slow_rank_and_the_step_time_of_its_run(store: EmbeddedStore) -> None:
    put_run(store, "monday", SLOW)
    (run,) = check(store).runs
    assert (run.run_id, run.attempt) == ("monday", 0)
    assert ("compute-straggler", (5,)) in named(run)
    assert 0.1 < run.step_s < 10


@pytest.mark.parametrize("num_steps", [30, 230])
def test_check_reports_a_rank_slow_for_twelve_steps_in_a_short_and_a_long_run(
    store: EmbeddedStore, num_steps: int
) -> None:
    put_run(store, "monday", f"{SLOW},first_step={num_steps - 12}", num_steps=num_steps)
    (run,) = check(store).runs
    assert ("compute-straggler", (5,)) in named(run)


def test_check_does_not_report_a_straggler_that_has_recovered(store: EmbeddedStore) -> None:
    put_run(store, "monday", f"{SLOW},first_step=60,last_step=100", num_steps=140)
    (run,) = check(store).runs
    assert not [one for one in named(run) if one[0] == "compute-straggler"]


def test_onset_of_a_finding_is_the_step_and_wall_time_at_which_the_fault_began(store: EmbeddedStore) -> None:
    put_run(store, "monday", f"{SLOW},first_step=180", num_steps=230)
    (run,) = check(store).runs
    (onset, *_) = sorted(
        (one.onset for one in run.sightings if one.finding.kind == "compute-straggler" and one.onset),
        key=lambda onset: (not onset.is_exact, onset.step),
    )
    assert onset.is_exact
    assert 175 <= onset.step <= 185
    steps = StoreReader(store).read(Steps(run_id="monday", attempt=0)).to_pylist()
    assert onset.at_ns == next(row["start_ns"] for row in steps if row["step"] == onset.step)


def test_check_of_a_dead_run_does_not_report_its_straggler(store: EmbeddedStore) -> None:
    put_run(store, "monday", SLOW)
    put_beats(store, "monday", ended=False)
    assert ("compute-straggler", (5,)) in named(*check(store).runs)
    now_ns = time.time_ns()
    died = [{"rank": rank, "at_ns": now_ns, "beat_ns": now_ns, "ended": 2} for rank in range(8)]
    insert(store, "heartbeats", made("heartbeats", died), run_id="monday")
    (run,) = check(store).runs
    assert run.has_ended
    assert ("compute-straggler", (5,)) not in named(run)


def test_check_skips_a_run_that_ended_normally(store: EmbeddedStore) -> None:
    put_run(store, "monday", SLOW)
    put_beats(store, "monday", ended=False)
    assert check(store).runs
    put_beats(store, "monday", ended=True)
    assert not check(store).runs


def test_check_skips_a_run_without_data_for_more_than_an_hour(store: EmbeddedStore) -> None:
    put_run(store, "monday", SLOW)
    assert check(store, after_s=3000).runs
    assert not check(store, after_s=4000).runs


def test_check_includes_a_stalled_run_while_its_agent_sends_heartbeats(store: EmbeddedStore) -> None:
    put_run(store, "monday", SLOW, ended_s=7200)
    assert not check(store).runs
    put_beats(store, "monday", ended=False)
    assert check(store).runs


def test_run_that_cannot_be_diagnosed_is_reported_once_and_other_runs_are_checked(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(store, "monday", SLOW)
    put_run(store, "tuesday", SLOW)
    reader, said = StoreReader(store), []
    answer = reader.read

    def read(query: Query) -> object:
        if isinstance(query, Ranks) and query.run_id == "monday":
            raise ZeroDivisionError("in a detector")
        return answer(query)

    monkeypatch.setattr(reader, "read", read)
    checker = RunChecker(ErrorReports(said.append))
    for _ in range(2):
        seen = checker.check(reader, period_s=5)
        assert [run.run_id for run in seen.runs] == ["tuesday"]
        assert seen.failed == {("monday", 0)}
    assert said == ["run monday/0: cannot be diagnosed: ZeroDivisionError: in a detector"]
    monkeypatch.undo()
    assert len(checker.check(reader, period_s=5).runs) == 2
    assert said[1:] == ["run monday/0: diagnosed again"]


def test_check_of_an_empty_store_finds_no_runs_and_does_not_fail(store: EmbeddedStore) -> None:
    seen = check(store)
    assert not seen.runs
    assert not seen.failed
    assert not seen.blind


def test_run_without_new_data_is_not_diagnosed_again_until_new_data_arrives(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(store, "dead", SLOW)
    put_beats(store, "dead", ended=False)
    reader, asked = StoreReader(store), []
    answer = reader.read

    def read(query: Query) -> object:
        if isinstance(query, OperationColumns):
            asked.append(query)
        return answer(query)

    monkeypatch.setattr(reader, "read", read)
    checker = RunChecker(ErrorReports(print))
    checks = [checker.check(reader, period_s=5) for _ in range(2)]
    done = len(asked)
    checks += [checker.check(reader, period_s=5) for _ in range(3)]
    assert len(asked) == done > 0
    assert all(("compute-straggler", (5,)) in named(*one.runs) for one in checks)
    put_beats(store, "dead", ended=False)
    assert checker.check(reader, period_s=5).runs
    assert len(asked) > done


def test_check_sends_only_the_runs_query_for_half_a_minute_when_a_run_is_silent(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_run(store, "dead", SLOW, ended_s=300)
    reader, asked, now_ns = StoreReader(store), [], time.time_ns()
    answer = reader.read

    def read(query: Query) -> object:
        asked.append(type(query).__name__)
        return answer(query)

    monkeypatch.setattr(reader, "read", read)
    checker = RunChecker(ErrorReports(print), clock_ns=lambda: now_ns)
    first = checker.check(reader, period_s=5)
    for later_s, asks in ((5, ["Runs"]), (29, ["Runs"]), (31, ["Runs", "Heartbeats"])):
        asked.clear()
        now_ns += int(later_s * 1e9)
        assert checker.check(reader, period_s=5).runs == first.runs
        assert asked[: len(asks)] == asks
        assert (len(asked) == 1) is (asks == ["Runs"])
        now_ns -= int(later_s * 1e9)
    step = {"stage": int(Stage.STEP), "step": 30, "start_ns": now_ns, "duration_ns": 1_000_000_000, "seq": 10**6}
    insert(store, "spans", made("spans", ({"rank": rank, **step} for rank in range(8))), run_id="dead")
    asked.clear()
    checker.check(reader, period_s=5)
    assert "OperationColumns" in asked


def test_check_covers_the_newest_runs_and_marks_the_others_as_failed_when_there_are_too_many(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_RUNS", 2)
    for number in range(4):
        put_run(store, f"run-{number:02d}", num_steps=3)
    said: list[str] = []
    seen = check(store, said)
    assert len(seen.runs) == 2
    assert len(seen.failed) == 2
    assert not seen.failed & {(run.run_id, run.attempt) for run in seen.runs}
    assert said == ["4 runs are active: only the newest 2 are checked; alerts of the others do not change"]


def test_news_changes_with_a_link_loss_of_an_active_run_but_not_of_a_silent_run(store: EmbeddedStore) -> None:
    for name in ("living", "silent"):
        put_run(store, name, ended_s=0 if name == "living" else 300)
    put_beats(store, "living", ended=False)
    checker = RunChecker(ErrorReports(print))
    reader = StoreReader(store)
    assert len(checker.check(reader, period_s=5).runs) == 2
    before = checker.news(reader)
    put_link_loss(store, "silent")
    assert checker.news(reader) == before
    put_link_loss(store, "living")
    assert checker.news(reader) != before


def put_link_loss(store: EmbeddedStore, name: str) -> None:
    event = {"host": "host-0", "device": "eth0", "at_ns": time.time_ns(), "name": str(Happening.LINK_DOWN)}
    insert(store, "host_events", made("host_events", [event]), run_id=name)
