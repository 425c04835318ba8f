"""The watcher: look, let the state machine judge, write it down, let the hooks' threads work; again and again.

    reader --Watching--> Look --advance--> Outcome --one transaction--> ledger --wake--> a dispatcher for each hook
      |                                                                   |
      +-- nobody answers: told once; all alerts stand still               +-- full disk: told once; as if not seen yet

It ends when it is told to, and of nothing else.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager

from diagnose.alerts.alert import Phase
from diagnose.alerts.complaints import Complaints
from diagnose.alerts.dispatch import Dispatcher
from diagnose.alerts.ledger import Ledger
from diagnose.alerts.life import State, advance
from diagnose.alerts.look import Look
from diagnose.alerts.looks import Watching
from diagnose.alerts.rules import Policy
from telemetry.errors import RankscopeError, UnreachableError, UsageError
from telemetry.stores.reader import Reader

MAX_SHARE = 3
"""Pauses are at least so many times as long as the look before: a slow store is not looked at without end."""
FINISH_S = 5.0
"""How long the hooks may take for what is left when the watcher ends."""
GLANCE_S = 1.0
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
        ledger: Ledger,
        policy: Policy,
        dispatchers: Sequence[Dispatcher],
        complaints: Complaints,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.state: State = ledger.load()
        self._ledger = ledger
        self._policy = policy
        self._dispatchers = dispatchers
        self._complaints = complaints
        self._clock_ns = clock_ns
        self._watching = Watching(complaints, clock_ns=clock_ns)
        self._source = _Source(open_reader)

    def open(self) -> None:
        """See whether there is somebody to look at; whoever does not answer yet is asked again by :meth:`look`.

        Raises:
            UsageError: the address is of no known form, or no store is there.
        """
        try:
            self._source.reader()
        except UnreachableError as error:
            self._complain(error)

    def look(self, period_s: float) -> None:
        """Look and write down what follows. Raises nothing that another look may mend."""
        outcome = advance(self.state, self._seen(period_s), self._policy)
        try:
            self._ledger.store(outcome)
        except (sqlite3.Error, OSError) as error:
            self._complaints.begin("ledger", f"alerts cannot be written down, and wait: {error}")
            return
        self._complaints.end("ledger", "alerts are written down again")
        self.state = outcome.state
        for hook in {hook for telling in outcome.tellings for hook in telling.hooks}:
            self._wake(hook)

    def news(self) -> Hashable:
        """Changes when a look should not wait; None where nobody answers."""
        try:
            return self._watching.news(self._source.reader())
        except (UnreachableError, UsageError):
            self._source.close()
            return None

    def pause_s(self, every_s: float, took_s: float) -> float:
        """Seconds until the next look; sooner where an alert that is pending may fire before."""
        now_ns = self._clock_ns()
        due_s = [
            self._policy.rule(alert.kind).for_s - (now_ns - alert.began_ns) / 1e9
            for alert in self.state.alerts.values()
            if alert.phase is Phase.PENDING
        ]
        return max(MAX_SHARE * took_s, min(every_s, max(SOON_S, min(due_s, default=every_s))))

    def close(self) -> None:
        self._source.close()

    def _seen(self, period_s: float) -> Look:
        try:
            look = self._watching.look(self._source.reader(), period_s)
        except (UnreachableError, UsageError) as error:
            # What a collector refuses (a token that was changed, another version) may be mended there, too.
            self._source.close()
            self._complain(error)
            return Look(now_ns=self._clock_ns(), blind=True)
        self._complaints.end("store", "the store answers again")
        return look

    def _complain(self, error: RankscopeError) -> None:
        self._complaints.begin("store", f"{error.message}; alerts stand still until it answers")

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
        self._opened.close()


def watch(watcher: Watcher, every_s: float, stop: threading.Event) -> None:
    """Look every ``every_s``, less often where a look takes long, at once where there is news; until ``stop``."""
    pause_s = every_s
    while not stop.is_set():
        began_s, known = time.monotonic(), watcher.news()
        watcher.look(pause_s + every_s)
        pause_s = watcher.pause_s(every_s, time.monotonic() - began_s)
        _rest(watcher, known, pause_s, stop)


def _rest(watcher: Watcher, known: Hashable, pause_s: float, stop: threading.Event) -> None:
    """Until the next look is due, or something has happened since ``known`` that cannot wait for it."""
    until_s = time.monotonic() + pause_s
    while (left_s := until_s - time.monotonic()) > 0 and not stop.wait(min(GLANCE_S, left_s)):
        if watcher.news() != known:
            return


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
