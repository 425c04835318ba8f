"""Delivery of notices from the outbox to hooks that accept, refuse, fail or block."""

import asyncio
import resource
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check
from diagnose.alerts.dispatch import GIVEN_UP_NS, MIN_TRIES, Backoff, Dispatcher
from diagnose.alerts.hooks.interface import Hook, HookError, MemoryHook
from diagnose.alerts.life import advance
from diagnose.alerts.notice import ErrorReports, Notice
from diagnose.alerts.sightings import RunFindings, Sighting
from diagnose.findings import Kind
from tests.deadline import until
from tests.diagnose.alerts.made_checks import RUN, START_NS, finding, policy

AT_ONCE = Backoff(first_s=0.001, most_s=0.01)
MANY = 4_000
MOST_BYTES = MANY * 16 * 2**10


@pytest.fixture
def alert_store(tmp_path: Path) -> Iterator[AlertStore]:
    with AlertStore(tmp_path / "alerts.sqlite") as opened:
        yield opened


def fill_outbox(alert_store: AlertStore, count: int, *hooks: str, first_rank: int = 0) -> list[Notice]:
    """Fill the outbox with the alerts of a check that finds ``count`` stragglers."""
    found = (finding(Kind.COMPUTE_STRAGGLER, 8 * (first_rank + number)) for number in range(count))
    run = RunFindings(
        run_id=RUN, attempt=0, step_s=1, sightings=tuple(Sighting(finding=one, has_known_time=True) for one in found)
    )
    outcome = advance(alert_store.load(), Check(now_ns=START_NS, runs=(run,)), policy(hooks=hooks, for_s=0))
    alert_store.store(outcome)
    return [delivery.notice for delivery in outcome.deliveries]


@contextmanager
def running_dispatchers(
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
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Blocking(MemoryHook):
    """A hook that does not return until it is released."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked = threading.Event()
        self.released = threading.Event()

    def send(self, notices: Sequence[Notice]) -> None:
        self.asked.set()
        self.released.wait(30)


class Picky(MemoryHook):
    """A hook that permanently rejects each batch with the notice ``number``."""

    def __init__(self, number: int, *, batch: int) -> None:
        super().__init__("picky", batch=batch)
        self.number = number

    def send(self, notices: Sequence[Notice]) -> None:
        if any(notice.number == self.number for notice in notices):
            raise HookError("status 400", again=False)
        super().send(notices)


def test_notices_arrive_in_order_and_leave_the_outbox(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=7)
    told = fill_outbox(alert_store, 100, "log")
    with running_dispatchers(alert_store, hook):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_temporarily_refused_notices_are_retried_until_the_hook_accepts_them(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=3)
    hook.refusals = [HookError("status 503", again=True) for _ in range(5)]
    told, said = fill_outbox(alert_store, 10, "log"), []
    with running_dispatchers(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told
    assert said == [
        "hook log: status 503; its notifications are kept and retried",
        "hook log: accepts notifications again",
    ]


@pytest.mark.parametrize("mistake", [ZeroDivisionError("oops"), SystemExit(1), asyncio.CancelledError()])
def test_unexpected_exception_of_a_hook_is_treated_as_a_temporary_refusal(
    alert_store: AlertStore, mistake: BaseException
) -> None:
    hook = MemoryHook("log")
    hook.refusals = [mistake]  # type: ignore[list-item]
    told = fill_outbox(alert_store, 2, "log")
    with running_dispatchers(alert_store, hook):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_only_the_invalid_notice_is_dropped_when_its_batch_is_rejected_permanently(alert_store: AlertStore) -> None:
    hook, said = Picky(4, batch=10), []
    told = fill_outbox(alert_store, 12, "picky")
    with running_dispatchers(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == [notice for notice in told if notice.number != 4]
    assert len(said) == 1
    assert "rejected and dropped: compute-straggler of [24]" in said[0]


def test_blocked_hook_does_not_delay_other_hooks(alert_store: AlertStore) -> None:
    dead, well = Blocking("dead"), MemoryHook("well")
    told = fill_outbox(alert_store, 20, "dead", "well")
    with running_dispatchers(alert_store, dead, well):
        until(dead.asked.is_set)
        until(lambda: alert_store.num_waiting() == {"dead": 20})
        dead.released.set()
    assert well.taken == told


def test_dispatcher_sends_new_notices_after_each_wake(alert_store: AlertStore) -> None:
    hook = MemoryHook("log")
    with running_dispatchers(alert_store, hook) as (dispatcher,):
        for number in range(3):
            fill_outbox(alert_store, 1, "log", first_rank=number)
            dispatcher.wake()
            until(lambda: not alert_store.num_waiting(), seconds=4)
    assert [notice.labels["rank"] for notice in hook.taken] == ["0", "8", "16"]


def test_shutdown_sends_waiting_notices_and_keeps_refused_ones_in_the_outbox(alert_store: AlertStore) -> None:
    well, ill = MemoryHook("well"), MemoryHook("ill")
    ill.refusals = [HookError("refused", again=True, after_s=3600)] * 100
    told = fill_outbox(alert_store, 30, "well", "ill")
    with running_dispatchers(alert_store, well, ill):
        pass
    assert well.taken == told
    assert alert_store.num_waiting() == {"ill": 30}


def test_dispatcher_finishes_when_its_hook_returns_after_the_alert_store_closed(alert_store: AlertStore) -> None:
    hook = Blocking("slow")
    fill_outbox(alert_store, 1, "slow")
    reports: list[str] = []
    dispatcher = Dispatcher(hook, alert_store, ErrorReports(reports.append), AT_ONCE)
    dispatcher.start()
    until(hook.asked.is_set)
    dispatcher.finish(0)
    alert_store.close()
    hook.released.set()
    dispatcher.finish(30)
    assert not dispatcher._thread.is_alive()
    assert reports == []


class Deaf(MemoryHook):
    """A hook that always refuses the first notice with a temporary error."""

    def send(self, notices: Sequence[Notice]) -> None:
        if notices[0].number == 1:
            raise HookError("status 500", again=True)
        super().send(notices)


def test_notice_refused_for_more_than_a_day_is_dropped_and_reported_and_blocks_no_other(
    alert_store: AlertStore,
) -> None:
    hook, said = Deaf("deaf"), []
    told = fill_outbox(alert_store, 3, "deaf")
    with running_dispatchers(alert_store, hook, said=said, now_ns=START_NS + GIVEN_UP_NS + 1):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told[1:]
    assert said[1].startswith(
        "hook deaf: status 500; this notification is dropped after a day of tries: compute-straggler of [0]"
    )


def test_notice_older_than_a_day_is_not_dropped_before_the_minimum_number_of_tries(alert_store: AlertStore) -> None:
    hook = MemoryHook("log", batch=2)
    hook.refusals = [HookError("no network yet", again=True)] * (MIN_TRIES - 1)
    told = fill_outbox(alert_store, 3, "log")
    with running_dispatchers(alert_store, hook, now_ns=START_NS + 2 * GIVEN_UP_NS):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_notice_not_older_than_a_day_is_kept_however_often_it_is_refused(alert_store: AlertStore) -> None:
    hook = MemoryHook("log")
    hook.refusals = [HookError("status 500", again=True)] * (5 * MIN_TRIES)
    told = fill_outbox(alert_store, 3, "log")
    with running_dispatchers(alert_store, hook, now_ns=START_NS + GIVEN_UP_NS):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == told


def test_repeated_temporary_refusal_is_reported_once_with_its_hint(alert_store: AlertStore) -> None:
    hook, said = MemoryHook("log"), []
    hook.refusals = [HookError("status 401", again=True, hint="is its token still good?")] * 5
    fill_outbox(alert_store, 1, "log")
    with running_dispatchers(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert said[0] == "hook log: status 401; its notifications are kept and retried; hint: is its token still good?"
    assert len(said) == 2


def test_unreadable_notice_is_reported_and_does_not_block_other_notices(
    alert_store: AlertStore, tmp_path: Path
) -> None:
    hook, said = MemoryHook("log"), []
    told = fill_outbox(alert_store, 3, "log")
    with sqlite3.connect(tmp_path / "alerts.sqlite") as database:
        database.execute("UPDATE outbox SET body = '{}' WHERE number = 2")
    with running_dispatchers(alert_store, hook, said=said):
        until(lambda: not alert_store.num_waiting())
    assert hook.taken == [told[0], told[2]]
    assert said == ["hook log: unreadable notifications are moved to the table `aside` of the alert state: 2"]


class Broken:
    """An outbox that raises an unexpected error for ``times_left`` reads."""

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


def test_outbox_error_is_reported_once_and_does_not_stop_the_dispatcher(alert_store: AlertStore) -> None:
    hook, said, outbox = MemoryHook("log"), [], Broken(alert_store)
    told = fill_outbox(alert_store, 1, "log")
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


def test_dispatcher_delivers_notices_when_standard_error_is_closed(alert_store: AlertStore) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError(text)

    hook = MemoryHook("log")
    hook.refusals = [HookError("status 500", again=True)]
    told = fill_outbox(alert_store, 2, "log")
    dispatcher = Dispatcher(hook, alert_store, ErrorReports(gone), AT_ONCE)
    dispatcher.start()
    until(lambda: not alert_store.num_waiting())
    dispatcher.finish(10)
    assert hook.taken == told


def test_backoff_pause_doubles_up_to_a_limit_and_respects_the_requested_pause() -> None:
    longest = Backoff(first_s=1, most_s=60, chance=lambda: 1.0)
    shortest = Backoff(first_s=1, most_s=60, chance=lambda: 0.0)
    assert [longest.pause_s(failures, 0) for failures in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
    assert shortest.pause_s(3, 0) == 2
    assert shortest.pause_s(1, 90) == 90
    assert shortest.pause_s(1, 1e9) == 3600


def test_thousands_of_notices_of_one_check_arrive_in_order_with_bounded_memory(alert_store: AlertStore) -> None:
    hooks = [MemoryHook("log", batch=100), MemoryHook("manager", batch=64)]
    before_bytes = peak_bytes()
    told = fill_outbox(alert_store, MANY, "log", "manager")
    assert len(told) == MANY
    assert peak_bytes() - before_bytes < MOST_BYTES
    with running_dispatchers(alert_store, *hooks):
        until(lambda: not alert_store.num_waiting(), every=0.2)
    for hook in hooks:
        assert [notice.number for notice in hook.taken] == list(range(1, MANY + 1))


class Full:
    """An outbox on a disk that is full while ``is_full``. It can be read, but nothing can be deleted."""

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
def test_notices_are_sent_once_and_the_error_reported_once_when_the_outbox_disk_is_full(
    alert_store: AlertStore, batch: int
) -> None:
    hook, said, outbox = MemoryHook("log", batch=batch), [], Full(alert_store)
    told = fill_outbox(alert_store, 3, "log")
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


def test_rejected_notice_is_reported_once_and_blocks_no_other_when_the_outbox_disk_is_full(
    alert_store: AlertStore,
) -> None:
    hook, said, outbox = Picky(1, batch=2), [], Full(alert_store)
    told = fill_outbox(alert_store, 3, "picky")
    dispatcher = Dispatcher(hook, outbox, ErrorReports(said.append), AT_ONCE)
    dispatcher.start()
    until(lambda: dispatcher.wake() or outbox.refused > 10)
    dispatcher.finish(10)
    assert hook.taken == told[1:]
    assert len([line for line in said if "rejected and dropped" in line]) == 1
