"""The watcher repeats: check the runs, update the alerts, store them, wake the threads of the hooks.

   reader --RunChecker--> Check --advance--> Outcome --one transaction--> alert_store --wake--> dispatchers of hooks
      |                                                                   |
      |                                                                   |--publish--> collector: the dashboard's page
      |                                                                   `--LogSender--> collector: the findings log
      +-- no answer: printed once, alerts do not change                    +-- full disk: printed once, retried

It ends only after a signal.
"""

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace

from diagnose.alerts.alert import Phase
from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check, RunChecker
from diagnose.alerts.dispatch import Dispatcher
from diagnose.alerts.life import State, advance
from diagnose.alerts.log import LogSender
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.publish import Publisher
from diagnose.alerts.quiet import Quiets, quiets_in
from diagnose.alerts.rules import Policy
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.records import MAX_AHEAD_NS
from telemetry.stores.interface import Reader
from telemetry.stores.queries import FindingDecisions, UnresolvedFindings

MAX_SHARE = 1
"""On average, pauses last at least this many times as long as checks. It limits the load on a slow store."""
FINISH_S = 5.0
"""Time in which the hooks may send remaining notices when the watcher ends."""
BURST_S = 30.0
"""Time that early checks may take in total (after news, or while an alert is pending) before longer pauses follow."""
FOLLOW_S = 1.0
"""Time from news to a second check; it doubles for each further check. The effect on the job is often stored later."""
NEWS_EVERY_S = 0.5
"""Time between two cheap queries for news."""
MIN_PENDING_PAUSE_S = 0.5
"""Shortest pause before a pending alert is checked again."""

OpenReader = Callable[[], AbstractContextManager[Reader]]


class Watcher:
    """Checks once for each call of :meth:`check`. For one thread."""

    def __init__(
        self,
        *,
        open_reader: OpenReader,
        alert_store: AlertStore,
        policy: Policy,
        dispatchers: Sequence[Dispatcher],
        error_reports: ErrorReports,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.state: State = alert_store.load()
        self._alert_store = alert_store
        self._policy = policy
        self._dispatchers = dispatchers
        self._error_reports = error_reports
        self._clock_ns = clock_ns
        self._run_checker = RunChecker(error_reports, clock_ns=clock_ns)
        self._source = _Source(open_reader)
        self._publisher = Publisher(error_reports, self.state.alerts)
        self._log_sender = LogSender(alert_store, error_reports)

    def open(self) -> None:
        """Open the store. If it does not answer yet, :meth:`check` tries again.

        Raises:
            UsageError: the form of the address is unknown, or there is no store.
        """
        try:
            self._source.reader()
        except UnreachableError as error:
            self._report_error(error)

    def check(self, period_s: float) -> None:
        """Check the store, update the alerts and save them. Raises nothing: after an error, the next check retries."""
        result = self._run_check(period_s)
        try:
            outcome = advance(self.state, result, self._policy)
            self._alert_store.store(outcome)
        except Exception as error:  # a full disk, or an unexpected finding
            self._error_reports.begin("alert_store", f"alerts cannot be saved and are delayed: {_message(error)}")
            return
        self._error_reports.end("alert_store", "alerts are saved again")
        self.state = outcome.state
        for hook in {hook for delivery in outcome.deliveries for hook in delivery.hooks}:
            self._wake(hook)
        if not result.blind:
            self._publisher.publish(self._source.reader(), outcome.state.alerts, result)
            self._log_sender.send(self._source.reader())

    def news(self) -> Hashable:
        """A value that changes if a check should run at once. None if the store does not answer."""
        try:
            return self._run_checker.news(self._source.reader())
        except Exception:  # the next check gets the same error, and reports it
            self._source.close()
            return None

    def due_s(self) -> float:
        """Seconds until a pending alert may fire. Infinity if no alert is pending."""
        now_ns = self._clock_ns()
        due_s = [
            self._policy.rule(alert.kind).for_s - (now_ns - alert.began_ns) / 1e9
            for alert in self.state.alerts.values()
            if alert.phase is Phase.PENDING
        ]
        return max(MIN_PENDING_PAUSE_S, min(due_s, default=math.inf))

    def close(self) -> None:
        self._source.close()

    def _run_check(self, period_s: float) -> Check:
        try:
            reader = self._source.reader()
            check = self._with_log(reader, self._run_checker.check(reader, period_s))
        except Exception as error:
            # The error (a changed token, another version, an invalid answer) may be repaired at the store.
            self._source.close()
            self._report_error(error)
            return Check(now_ns=self._clock_ns(), blind=True)
        self._error_reports.end("store", "the store answers again")
        return check

    def _with_log(self, reader: Reader, check: Check) -> Check:
        """The check, with the times of findings in the log and with the decisions of people.

        They are left out if the store cannot answer these queries, for example because its version is older.
        """
        try:
            logged_ns = self._logged_ns(reader, check)
            check = replace(check, logged_ns=logged_ns, quiets=self._quiets(reader, check.now_ns, logged_ns.values()))
        except UnreachableError:
            raise
        except Exception as error:
            self._error_reports.begin("actions", f"acknowledgements and silences cannot be read: {_message(error)}")
            return check
        self._error_reports.end("actions", "acknowledgements and silences can be read again")
        return check

    def _logged_ns(self, reader: Reader, check: Check) -> dict[str, int]:
        """The value of ``Check.logged_ns``.

        It is empty while log rows of this watcher are not sent yet: the log may then show findings that are resolved.
        """
        runs = tuple({run.run_id for run in check.runs if run.sightings})
        if not runs or self._alert_store.log_count():
            return {}
        rows = reader.read(UnresolvedFindings(run_ids=runs)).to_pylist()
        return {row["fingerprint"]: row["raised_ns"] for row in rows}

    def _quiets(self, reader: Reader, now_ns: int, logged_ns: Iterable[int]) -> Quiets:
        """What people decided about the alerts, and about findings that were raised at ``logged_ns``.

        Actions have the time of the collector, alerts that of this process. A collector accepts no larger difference
        than MAX_AHEAD_NS.
        """
        alerts = self.state.alerts.values()
        began_ns = min([now_ns, *logged_ns, *(alert.raised_ns or alert.began_ns for alert in alerts)])
        decisions = FindingDecisions(since_ns=max(0, began_ns - MAX_AHEAD_NS), lasting_ns=now_ns)
        return quiets_in(reader.read(decisions).to_pylist())

    def _report_error(self, error: Exception) -> None:
        self._error_reports.begin("store", f"{_message(error)}; alerts do not change until the store answers")

    def _wake(self, hook: str) -> None:
        for dispatcher in self._dispatchers:
            if dispatcher.hook.name == hook:
                dispatcher.wake()


class _Source:
    """A reader. It is opened when it is needed, and kept while it answers."""

    def __init__(self, open_reader: OpenReader) -> None:
        self._open = open_reader
        self._opened = ExitStack()
        self._reader: Reader | None = None

    def reader(self) -> Reader:
        if self._reader is None:
            self._reader = self._opened.enter_context(self._open())
        return self._reader

    def close(self) -> None:
        self._reader = None
        with suppress(Exception):  # a broken reader may raise here
            self._opened.close()


def _message(error: Exception) -> str:
    return error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"


class NewsBudget:
    """Limits the time of early checks, which news causes.

        check          pause          check news! check follow check      news ...............: check
        ====-------------------------====-------====------====---------!...................====
                                            at once, for BURST_S               not before free_at_s

    After early checks, news has no effect until the average share of MAX_SHARE is reached again.
    """

    def __init__(self) -> None:
        self.free_at_s = -math.inf
        """From this time on, news starts a check at once. Same clock as ``ended_s`` of :meth:`add_check`."""

    def add_check(self, ended_s: float, took_s: float) -> None:
        """Count a check that has ended."""
        share_s = (1 + MAX_SHARE) * max(took_s, NEWS_EVERY_S / MAX_SHARE)
        burst_s = (1 + MAX_SHARE) * BURST_S
        self.free_at_s = max(self.free_at_s, ended_s - share_s - burst_s) + share_s


def watch(
    watcher: Watcher, every_s: float, stop: threading.Event, *, clock_s: Callable[[], float] = time.monotonic
) -> None:
    """Check every ``every_s`` until ``stop``. Checks are rarer if they take long, and earlier after news or while an
    alert is pending."""
    pause_s, follow_s, budget = every_s, math.inf, NewsBudget()
    while not stop.is_set():
        began_s, known = clock_s(), watcher.news()
        watcher.check(pause_s + every_s)
        ended_s = clock_s()
        budget.add_check(ended_s, ended_s - began_s)
        pause_s = max(every_s, MAX_SHARE * (ended_s - began_s))
        soon_s = min(follow_s, watcher.due_s())
        until_s = min(ended_s + pause_s, max(ended_s + soon_s, budget.free_at_s))
        follow_s = FOLLOW_S if _rest(watcher, known, until_s, budget.free_at_s, stop, clock_s) else 2 * follow_s


def _rest(
    watcher: Watcher,
    known: Hashable,
    until_s: float,
    free_at_s: float,
    stop: threading.Event,
    clock_s: Callable[[], float],
) -> bool:
    """Wait until ``until_s``. After news (a change of ``known``) only until ``free_at_s``; then return True."""
    while (left_s := until_s - clock_s()) > 0 and not stop.wait(min(NEWS_EVERY_S, left_s)):
        if watcher.news() != known:
            stop.wait(max(0.0, min(until_s, free_at_s) - clock_s()))
            return True
    return False


@contextmanager
def dispatching(dispatchers: Sequence[Dispatcher]) -> Iterator[None]:
    """Run the threads of the hooks during the block, and at most FINISH_S longer for remaining notices."""
    for dispatcher in dispatchers:
        dispatcher.start()
    try:
        yield
    finally:
        deadline_s = time.monotonic() + FINISH_S
        for dispatcher in dispatchers:
            dispatcher.finish(0.0)
        for dispatcher in dispatchers:
            dispatcher.finish(max(0.0, deadline_s - time.monotonic()))
