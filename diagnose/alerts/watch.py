"""The watcher repeats: check the runs, update the alerts, store them, wake the threads of the hooks.

   reader --Watching--> Check --advance--> Outcome --one transaction--> alert_store --wake--> a dispatcher of each hook
      |                                                                   |
      |                                                                   `--publish--> collector: the dashboard's page
      +-- no answer: printed once, alerts do not change                    +-- full disk: printed once, retried

It ends only when it is asked to.
"""

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

from diagnose.alerts.alert import Phase
from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.check import Check, Watching
from diagnose.alerts.dispatch import Dispatcher
from diagnose.alerts.life import State, advance
from diagnose.alerts.notice import Complaints
from diagnose.alerts.publish import Publisher
from diagnose.alerts.rules import Policy
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.stores.interface import Reader

MAX_SHARE = 1
"""Pauses are so many times as long as checks, on average even where they are cut short: a slow store is not looked at
without end."""
FINISH_S = 5.0
"""How long the hooks may take for what is left when the watcher ends."""
BURST_S = 30.0
"""So much time checks may take at once where there is news or an alert is pending, before it is paid back."""
FOLLOW_S = 1.0
"""News is often stored before what it did to the job: it is looked at again this much later, then twice that, ..."""
GLANCE_S = 0.5
"""Between two cheap questions whether anything has happened."""
SOON_S = 0.5
"""The least pause before a pending alert is looked at again."""

OpenReader = Callable[[], AbstractContextManager[Reader]]


class Watcher:
    """Looks once whenever it is asked to. For one thread."""

    def __init__(
        self,
        *,
        open_reader: OpenReader,
        alert_store: AlertStore,
        policy: Policy,
        dispatchers: Sequence[Dispatcher],
        complaints: Complaints,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.state: State = alert_store.load()
        self._alert_store = alert_store
        self._policy = policy
        self._dispatchers = dispatchers
        self._complaints = complaints
        self._clock_ns = clock_ns
        self._watching = Watching(complaints, clock_ns=clock_ns)
        self._source = _Source(open_reader)
        self._publisher = Publisher(complaints, self.state.alerts)

    def open(self) -> None:
        """See whether there is somebody to check at; whoever does not answer yet is asked again by :meth:`check`.

        Raises:
            UsageError: the address is of no known form, or no store is there.
        """
        try:
            self._source.reader()
        except UnreachableError as error:
            self._complain(error)

    def check(self, period_s: float) -> None:
        """Check and write down what follows. Raises nothing: another check may mend whatever goes wrong."""
        seen = self._seen(period_s)
        try:
            outcome = advance(self.state, seen, self._policy)
            self._alert_store.store(outcome)
        except Exception as error:  # a full disk, or a finding that nothing was prepared for
            self._complaints.begin("alert_store", f"alerts cannot be saved and are delayed: {_words(error)}")
            return
        self._complaints.end("alert_store", "alerts are saved again")
        self.state = outcome.state
        for hook in {hook for telling in outcome.tellings for hook in telling.hooks}:
            self._wake(hook)
        if not seen.blind:
            self._publisher.publish(self._source.reader(), outcome.state.alerts, seen)

    def news(self) -> Hashable:
        """Changes when a check should not wait; None where nobody answers."""
        try:
            return self._watching.news(self._source.reader())
        except Exception:  # the next check meets it too, and tells
            self._source.close()
            return None

    def due_s(self) -> float:
        """Seconds until an alert that is pending may fire; infinity where none is."""
        now_ns = self._clock_ns()
        due_s = [
            self._policy.rule(alert.kind).for_s - (now_ns - alert.began_ns) / 1e9
            for alert in self.state.alerts.values()
            if alert.phase is Phase.PENDING
        ]
        return max(SOON_S, min(due_s, default=math.inf))

    def close(self) -> None:
        self._source.close()

    def _seen(self, period_s: float) -> Check:
        try:
            check = self._watching.check(self._source.reader(), period_s)
        except Exception as error:
            # Whatever it is (a token that was changed, another version, a broken answer) may be mended there.
            self._source.close()
            self._complain(error)
            return Check(now_ns=self._clock_ns(), blind=True)
        self._complaints.end("store", "the store answers again")
        return check

    def _complain(self, error: Exception) -> None:
        self._complaints.begin("store", f"{_words(error)}; alerts do not change until the store answers")

    def _wake(self, hook: str) -> None:
        for dispatcher in self._dispatchers:
            if dispatcher.hook.name == hook:
                dispatcher.wake()


class _Source:
    """A reader, opened when it is needed and kept while it answers."""

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
        with suppress(Exception):  # one that is broken may not even close
            self._opened.close()


def _words(error: Exception) -> str:
    return error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"


class NewsBudget:
    """From when on news may cut a pause short, so that checks stay within their share of the time.

        check          pause          check news! check follow check      news ...............: check
        ====-------------------------====-------====------====---------!...................====
                                            at once, for BURST_S               not before it is free

    What checks before their time have cost is paid back before news counts again.
    """

    def __init__(self) -> None:
        self.free_at_s = -math.inf
        """Seconds, by the clock of :meth:`looked`."""

    def looked(self, ended_s: float, took_s: float) -> None:
        """A check is over."""
        share_s = (1 + MAX_SHARE) * max(took_s, GLANCE_S / MAX_SHARE)
        burst_s = (1 + MAX_SHARE) * BURST_S
        self.free_at_s = max(self.free_at_s, ended_s - share_s - burst_s) + share_s


def watch(
    watcher: Watcher, every_s: float, stop: threading.Event, *, clock_s: Callable[[], float] = time.monotonic
) -> None:
    """Check every ``every_s``, less often where a check takes long, sooner where there is news or an alert is pending;
    until ``stop``."""
    pause_s, follow_s, budget = every_s, math.inf, NewsBudget()
    while not stop.is_set():
        began_s, known = clock_s(), watcher.news()
        watcher.check(pause_s + every_s)
        ended_s = clock_s()
        budget.looked(ended_s, ended_s - began_s)
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
    """Until the next check is due, or something has happened since ``known`` and it is ``free_at_s``: then True."""
    while (left_s := until_s - clock_s()) > 0 and not stop.wait(min(GLANCE_S, left_s)):
        if watcher.news() != known:
            stop.wait(max(0.0, min(until_s, free_at_s) - clock_s()))
            return True
    return False


@contextmanager
def dispatching(dispatchers: Sequence[Dispatcher]) -> Iterator[None]:
    """Hooks' threads work for the block, and a little longer for what is left."""
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
