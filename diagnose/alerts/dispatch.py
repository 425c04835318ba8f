"""Sends notices from the outbox to hooks. Each hook has its own thread, so a failing hook does not delay the others.

    outbox of the hook --oldest `hook.batch`--> send ---returns-------------------> removed; the next ones
              ^                                   +-----HookError, temporary------> retried after a pause that doubles;
              |                                   |                                 after a day dropped, and reported
              |                                   +-----HookError, permanent------> sent one by one; a notice that is
              +--- at least once -----------------+                                 rejected alone is dropped, reported

Notices are sent in order of number. A notice is not sent before earlier ones are accepted or dropped. So the notices of
a fingerprint keep their order. If a notice cannot be removed (the disk is full), the process remembers it and does not
send it again.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagnose.alerts.alert_file import SpoiledRecordsError
from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.notice import ErrorReports, Notice

MAX_ASKED_S = 3600.0
"""Longest pause, even if a receiver requests a longer one."""
GIVEN_UP_NS = 86_400_000_000_000
"""A notice that was not accepted for this time is dropped: it is out of date, and it may block the following ones."""
MIN_TRIES = 10
"""A notice is dropped only after this many failures in a row. A watcher that was off for a day may start before its
network works."""
IDLE_S = 5.0
"""The outbox is read at least this often."""


class Outbox(Protocol):
    """Notices that hooks have not accepted yet. May be used by any thread; see ``alert_store.AlertStore``."""

    def waiting(self, hook: str, most: int) -> list[Notice]:
        """The oldest notices. Raises ``SpoiledRecordsError`` once if some are unreadable and were removed."""
        ...

    def taken(self, hook: str, notices: Sequence[Notice]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses after failures in a row. They double up to ``most_s``. Half of each pause is random."""

    first_s: float = 1.0
    most_s: float = 60.0
    chance: Callable[[], float] = random.random

    def pause_s(self, failures: int, asked_s: float) -> float:
        """The pause in seconds. It is at least ``asked_s``, the wait that the receiver requested (at most an hour)."""
        doubled_s = self.first_s * 2.0 ** min(failures - 1, 30)
        return max(min(asked_s, MAX_ASKED_S), min(self.most_s, doubled_s) * (0.5 + 0.5 * self.chance()))


class Dispatcher:
    """The thread of one hook. :meth:`finish` ends it. Unsent notices stay in the outbox."""

    def __init__(
        self,
        hook: Hook,
        outbox: Outbox,
        error_reports: ErrorReports,
        backoff: Backoff | None = None,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.hook = hook
        self._outbox = outbox
        self._error_reports = error_reports
        self._backoff = backoff or Backoff()
        self._clock_ns = clock_ns
        self._has_work = threading.Event()
        self._ending = threading.Event()
        self._failures = 0
        self._num_single = 0
        """Number of notices to send one by one, because a batch with them was rejected."""
        self._done: dict[tuple[str, int], Notice] = {}
        """Notices that were sent or dropped, but are not removed from the outbox yet, by fingerprint and number."""
        # A hook that blocks must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"hook {hook.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Report that the outbox has a new notice."""
        self._has_work.set()

    def finish(self, within_s: float) -> None:
        """Send what can be sent at once, then end. Waits at most ``within_s``."""
        self._ending.set()
        self._has_work.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            self._has_work.clear()
            ending = self._ending.is_set()
            self._try_all()
            if ending:
                return
            self._has_work.wait(IDLE_S)

    def _try_all(self) -> None:
        """Send all notices. If another part than the hook fails (full disk, broken file), report the error and retry
        later."""
        try:
            self._send_all()
            self._remove_done()
        except Exception as error:
            self._report_error(error)
            return
        self._error_reports.end(self._outbox_name, f"{self._outbox_name}: works again")

    def _report_error(self, error: Exception) -> None:
        # At the end of the watcher, the alert store may be closed already.
        if not self._ending.is_set():
            text = f"{self._outbox_name}: {type(error).__name__}: {error}; retrying"
            self._error_reports.begin(self._outbox_name, text)

    @property
    def _outbox_name(self) -> str:
        return f"outbox of hook {self.hook.name}"

    def _send_all(self) -> None:
        """Send until the outbox is empty, or until the watcher ends and the receiver does not accept notices."""
        while notices := self._waiting():
            failure = self._sent(notices)
            if failure is None:
                self._accepted(notices)
            elif failure.again:
                self._give_up(notices, failure)
                if self._paused(failure):
                    return
            elif len(notices) > 1:
                self._num_single = len(notices)
            else:
                self._error_reports.report(
                    f"{self._named(failure)}; this notification is rejected and dropped: {notices[0].summary}"
                )
                self._accepted(notices)

    def _waiting(self) -> list[Notice]:
        """The oldest notices that are not in ``_done``."""
        most = 1 if self._num_single else self.hook.batch
        while True:
            try:
                waiting = self._outbox.waiting(self.hook.name, most + len(self._done))
                return [notice for notice in waiting if _key(notice) not in self._done][:most]
            except SpoiledRecordsError as error:
                self._error_reports.report(f"hook {self.hook.name}: {error}")

    def _sent(self, notices: Sequence[Notice]) -> HookError | None:
        try:
            self.hook.send(notices)
        except HookError as error:
            return error
        except BaseException as error:  # a hook of another package may raise anything; the thread must continue
            return HookError(f"{type(error).__name__}: {error}", again=True)
        return None

    def _accepted(self, notices: Sequence[Notice]) -> None:
        self._finished_with(notices)
        self._failures = 0
        self._error_reports.end(self.hook.name, f"hook {self.hook.name}: accepts notifications again")

    def _finished_with(self, notices: Sequence[Notice]) -> None:
        """Do not send these notices again, even if they cannot be removed from the outbox yet."""
        self._done |= {_key(notice): notice for notice in notices}
        self._num_single = max(0, self._num_single - len(notices))
        try:
            self._remove_done()
        except Exception as error:  # the next notices can be sent without the disk
            self._report_error(error)

    def _remove_done(self) -> None:
        if self._done:
            self._outbox.taken(self.hook.name, list(self._done.values()))
            self._done.clear()

    def _give_up(self, notices: Sequence[Notice], failure: HookError) -> None:
        """Drop the notices that were retried for a day."""
        oldest_ns = self._clock_ns() - GIVEN_UP_NS
        old = [notice for notice in notices if notice.created_ns < oldest_ns]
        if self._failures + 1 < MIN_TRIES or not old:
            return
        self._finished_with(old)
        for notice in old:
            self._error_reports.report(
                f"{self._named(failure)}; this notification is dropped after a day of tries: {notice.summary}"
            )

    def _paused(self, failure: HookError) -> bool:
        """Wait before the next try. Returns whether the watcher ends."""
        self._failures += 1
        kept = "its notifications are kept and retried"
        hint = f"; hint: {failure.hint}" if failure.hint else ""
        self._error_reports.begin(self.hook.name, f"{self._named(failure)}; {kept}{hint}")
        return self._ending.wait(self._backoff.pause_s(self._failures, failure.after_s))

    def _named(self, failure: HookError) -> str:
        text, name = str(failure), f"hook {self.hook.name}"
        return text if text.startswith(name) else f"{name}: {text}"


def _key(notice: Notice) -> tuple[str, int]:
    return notice.fingerprint, notice.number
