"""From the outbox to hooks that refuse, block, or take it."""

import asyncio
import resource
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check, RunFindings, Sighting
from diagnose.alerts.dispatch import GIVEN_UP_NS, MIN_TRIES, Backoff, Dispatcher
from diagnose.alerts.hooks.interface import Hook, HookError, MemoryHook
from diagnose.alerts.life import advance
from diagnose.alerts.notice import ErrorReports, Notice
from diagnose.findings import Kind
from tests.deadline import until
from tests.diagnose.alerts.made_checks import RUN, START_NS, finding, policy

AT_ONCE = Backoff(first_s=0.001, most_s=0.01)
MOST_BYTES = 160 * 2**20


@pytest.fixture
def alert_store(tmp_path: Path) -> Iterator[AlertStore]:
    with AlertStore(tmp_path / "alerts.sqlite") as opened:
        yield opened


def tell(alert_store: AlertStore, count: int, *hooks: str, first_rank: int = 0) -> list[Notice]:
    """Fill the outbox with the alerts of a check that finds ``count`` troubles."""
    found = (finding(Kind.COMPUTE_STRAGGLER, 8 * (first_rank + number)) for number in range(count))
    run = RunFindings(
        run_id=RUN, attempt=0, step_s=1, sightings=tuple(Sighting(finding=one, has_known_time=True) for one in found)
    )
    outcome = advance(alert_store.load(), Check(now_ns=START_NS, runs=(run,)), policy(hooks=hooks, for_s=0))
    alert_store.store(outcome)
    return [delivery.notice for delivery in outcome.deliveries]


@contextmanager
def working(
    alert_store: AlertStore, *hooks: Hook, said: list[str] | None = None, now_ns: int = START_NS
) -> Iterator[list[Dispatcher]]:
    error_reports = ErrorReports((said if said is not None else []).append)
    dispatchers = [Dispatcher(hook, alert_store, error_reports, AT_ONCE, clock_ns=lambda: now_ns) for hook in hooks]
    for one in dispatchers:
        one.start()
    try:
        yield dispatchers
    finally:
        for one in dispatchers:
            one.finish(10)


def peak_bytes() -> int:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Blocking(MemoryHook):
    """A receiver that never answers."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked = threading.Event()
        self.released = threading.Event()

    def send(self, notices: Sequence[Notice]) -> None:
        self.asked.set()
        self.released.wait(30)


class Picky(MemoryHook):
    """Refuses a batch for good if a certain notice is in it."""

    def __init__(self, number: int, *, batch: int) -> None:
        super().__init__("picky", batch=batch)
        self.number = number

    def send(self, notices: Sequence[Notice]) -> None:
        if any(notice.number == self.number for notice in notices):
            raise HookError("status 400", again=False)
        super().send(notices)


def test_notices_arrive_in_order_and_leave_the_outbox(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=7)
    told = tell(alert_store, 100, "log")
    with working(alert_store, hook):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_a_hook_that_refuses_for_now_is_asked_until_it_takes_them(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=3)
    hook.refusals = [HookError("status 503", again=True) for _ in range(5)]
    told, said = tell(alert_store, 10, "log"), []
    with working(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told
    assert said == [
        "hook log: status 503; its notifications are kept and retried",
        "hook log: accepts notifications again",
    ]


@pytest.mark.parametrize("mistake", [ZeroDivisionError("oops"), SystemExit(1), asyncio.CancelledError()])
def test_what_a_hook_raises_by_mistake_is_a_refusal_for_now(alert_store: AlertStore, mistake: BaseException) -> None:
    hook = MemoryHook("log")
    hook.refusals = [mistake]  # type: ignore[list-item]
    told = tell(alert_store, 2, "log")
    with working(alert_store, hook):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_of_a_batch_that_is_refused_for_good_only_the_one_at_fault_is_dropped(alert_store: AlertStore) -> None:
    hook, said = Picky(4, batch=10), []
    told = tell(alert_store, 12, "picky")
    with working(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == [notice for notice in told if notice.number != 4]
    assert len(said) == 1
    assert "rejected, dropped: compute-straggler of [24]" in said[0]


def test_a_dead_hook_delays_no_other(alert_store: AlertStore) -> None:
    dead, well = Blocking("dead"), MemoryHook("well")
    told = tell(alert_store, 20, "dead", "well")
    with working(alert_store, dead, well):
        until(dead.asked.is_set)
        until(lambda: alert_store.num_waiting() == {"dead": 20})
        dead.released.set()
    assert well.taken == told


def test_what_comes_later_is_sent_when_it_is_there(alert_store: AlertStore) -> None:
    hook = MemoryHook("log")
    with working(alert_store, hook) as (dispatcher,):
        for number in range(3):
            tell(alert_store, 1, "log", first_rank=number)
            dispatcher.wake()
            until(lambda: not alert_store.num_waiting(), seconds=4)
    assert [notice.labels["rank"] for notice in hook.taken] == ["0", "8", "16"]


def test_at_the_end_what_can_be_sent_is_sent_and_the_rest_is_kept(alert_store: AlertStore) -> None:
    well, ill = MemoryHook("well"), MemoryHook("ill")
    ill.refusals = [HookError("refused", again=True, after_s=3600)] * 100
    told = tell(alert_store, 30, "well", "ill")
    with working(alert_store, well, ill):
        pass
    assert well.taken == told
    assert alert_store.num_waiting() == {"ill": 30}


def test_a_hook_that_ends_after_the_ledger_was_closed_hurts_nobody(alert_store: AlertStore) -> None:
    hook = Blocking("slow")
    tell(alert_store, 1, "slow")
    dispatcher = Dispatcher(hook, alert_store, ErrorReports(print), AT_ONCE)
    dispatcher.start()
    until(hook.asked.is_set)
    dispatcher.finish(0)
    alert_store.close()
    hook.released.set()
    dispatcher.finish(10)


class Deaf(MemoryHook):
    """Says of a certain notice, for ever, that it will take it later."""

    def send(self, notices: Sequence[Notice]) -> None:
        if notices[0].number == 1:
            raise HookError("status 500", again=True)
        super().send(notices)


def test_what_a_hook_did_not_take_for_a_day_is_dropped_and_told_and_blocks_nothing(alert_store: AlertStore) -> None:
    hook, said = Deaf("deaf"), []
    told = tell(alert_store, 3, "deaf")
    with working(alert_store, hook, said=said, now_ns=START_NS + GIVEN_UP_NS + 1):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told[1:]
    assert said[1].startswith("hook deaf: status 500; not accepted for a day, dropped: compute-straggler of [0]")


def test_what_is_a_day_old_is_not_dropped_after_a_few_tries(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=2)
    hook.refusals = [HookError("no network yet", again=True)] * (MIN_TRIES - 1)
    told = tell(alert_store, 3, "log")
    with working(alert_store, hook, now_ns=START_NS + 2 * GIVEN_UP_NS):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_what_is_not_a_day_old_is_kept_however_often_it_is_refused(alert_store: AlertStore) -> None:
    hook = MemoryHook("log")
    hook.refusals = [HookError("status 500", again=True)] * (5 * MIN_TRIES)
    told = tell(alert_store, 3, "log")
    with working(alert_store, hook, now_ns=START_NS + GIVEN_UP_NS):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_what_may_be_mended_is_told_once(alert_store: AlertStore) -> None:
    hook, said = MemoryHook("log"), []
    hook.refusals = [HookError("status 401", again=True, hint="is its token still good?")] * 5
    tell(alert_store, 1, "log")
    with working(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert said[0] == "hook log: status 401; its notifications are kept and retried; hint: is its token still good?"
    assert len(said) == 2


def test_a_notice_that_cannot_be_read_is_told_and_holds_up_no_other(alert_store: AlertStore, tmp_path: Path) -> None:
    hook, said = MemoryHook("log"), []
    told = tell(alert_store, 3, "log")
    with sqlite3.connect(tmp_path / "alerts.sqlite") as database:
        database.execute("UPDATE outbox SET body = '{}' WHERE number = 2")
    with working(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == [told[0], told[2]]
    assert said == ["hook log: unreadable notifications are moved to the table `aside` of the alert state: 2"]


class Broken:
    """An outbox that nobody is prepared for, for as long as it is told to be."""

    def __init__(self, alert_store: AlertStore) -> None:
        self._alert_store = alert_store
        self.times_left = 2

    def waiting(self, hook: str, most: int) -> list[Notice]:
        if self.times_left:
            self.times_left -= 1
            raise KeyError("what is this?")
        return self._alert_store.waiting(hook, most)

    def taken(self, hook: str, notices: Sequence[Notice]) -> None:
        self._alert_store.taken(hook, notices)


def test_an_outbox_that_breaks_is_told_once_and_ends_no_hook(alert_store: AlertStore) -> None:
    hook, said, outbox = MemoryHook("log"), [], Broken(alert_store)
    told = tell(alert_store, 1, "log")
    dispatcher = Dispatcher(hook, outbox, ErrorReports(said.append), AT_ONCE)
    dispatcher.start()
    until(lambda: outbox.times_left == 1)
    until(lambda: dispatcher.wake() or not outbox.times_left)
    until(lambda: dispatcher.wake() or hook.taken)
    dispatcher.finish(10)
    assert hook.taken == told
    assert said == [
        "outbox of hook log: KeyError: 'what is this?'; retrying",
        "outbox of hook log: works again",
    ]


def test_a_hook_outlives_standard_error(alert_store: AlertStore) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError(text)

    hook = MemoryHook("log")
    hook.refusals = [HookError("status 500", again=True)]
    told = tell(alert_store, 2, "log")
    dispatcher = Dispatcher(hook, alert_store, ErrorReports(gone), AT_ONCE)
    dispatcher.start()
    until(lambda: not alert_store.num_waiting())
    dispatcher.finish(10)
    assert hook.taken == told


def test_pauses_double_up_to_a_bound_and_are_as_long_as_the_receiver_asks() -> None:
    longest = Backoff(first_s=1, most_s=60, chance=lambda: 1.0)
    shortest = Backoff(first_s=1, most_s=60, chance=lambda: 0.0)
    assert [longest.pause_s(failures, 0) for failures in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
    assert shortest.pause_s(3, 0) == 2
    assert shortest.pause_s(1, 90) == 90
    assert shortest.pause_s(1, 1e9) == 3600


def test_ten_thousand_findings_in_a_look_arrive_in_order_in_bounded_memory(alert_store: AlertStore) -> None:
    hooks = [MemoryHook("log", batch=100), MemoryHook("manager", batch=64)]
    before_bytes = peak_bytes()
    told = tell(alert_store, 10_000, "log", "manager")
    assert len(told) == 10_000
    assert peak_bytes() - before_bytes < MOST_BYTES
    with working(alert_store, *hooks):
        until(lambda: not alert_store.num_waiting(), every=0.2)
    for hook in hooks:
        assert [notice.number for notice in hook.taken] == list(range(1, 10_001))


class Full:
    """An outbox on a disk that is full until it is told otherwise: it can be read."""

    def __init__(self, alert_store: AlertStore) -> None:
        self._alert_store = alert_store
        self.is_full = True
        self.refused = 0

    def waiting(self, hook: str, most: int) -> list[Notice]:
        return self._alert_store.waiting(hook, most)

    def taken(self, hook: str, notices: Sequence[Notice]) -> None:
        if self.is_full:
            self.refused += 1
            raise sqlite3.OperationalError("database or disk is full")
        self._alert_store.taken(hook, notices)


@pytest.mark.parametrize("batch", [1, 2])
def test_what_cannot_be_struck_out_is_sent_once_and_told_once(alert_store: AlertStore, batch: int) -> None:
    hook, said, outbox = MemoryHook("log", batch=batch), [], Full(alert_store)
    told = tell(alert_store, 3, "log")
    dispatcher = Dispatcher(hook, outbox, ErrorReports(said.append), AT_ONCE)
    dispatcher.start()
    until(lambda: dispatcher.wake() or outbox.refused > 10)
    outbox.is_full = False
    until(lambda: dispatcher.wake() or not alert_store.num_waiting())
    until(lambda: len(said) == 2)
    dispatcher.finish(10)
    assert hook.taken == told
    assert said == [
        "outbox of hook log: OperationalError: database or disk is full; retrying",
        "outbox of hook log: works again",
    ]


def test_what_is_refused_for_good_on_a_full_disk_is_told_once_and_blocks_nothing(alert_store: AlertStore) -> None:
    hook, said, outbox = Picky(1, batch=2), [], Full(alert_store)
    told = tell(alert_store, 3, "picky")
    dispatcher = Dispatcher(hook, outbox, ErrorReports(said.append), AT_ONCE)
    dispatcher.start()
    until(lambda: dispatcher.wake() or outbox.refused > 10)
    dispatcher.finish(10)
    assert hook.taken == told[1:]
    assert len([line for line in said if "; rejected" in line]) == 1
