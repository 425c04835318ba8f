"""From the outbox to a hook: one thread for each, so that a dead one delays no other.

    outbox of the hook --oldest `hook.batch`--> send ---returned-------------> struck out; the next
              ^                                   +-----HookError, again-----> the same, after a pause that doubles;
              |                                   |                            after a day it is dropped, and told
              |                                   +-----HookError, for good--> one by one; what is refused
              +--- at least once -----------------+                            alone is dropped, and told

Notices go out in order of number, and nothing overtakes what was not taken: the order within a fingerprint holds.
What cannot be struck out (the disk is full) is remembered, and not sent again while the process lives.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagnose.alerts.alert_store import SpoiledNoticesError
from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.notice import Complaints, Notice

MAX_ASKED_S = 3600.0
"""A receiver that asks to wait longer is asked again after this."""
GIVEN_UP_NS = 86_400_000_000_000
"""What a hook did not take for so long helps nobody any more, and may be what holds up all that comes after it."""
MIN_TRIES = 10
"""Nothing is given up after fewer failures in a row: a watcher that was off for a day may start before its network."""
IDLE_S = 5.0
"""The outbox is looked at after this even if nobody said that there is something."""


class Outbox(Protocol):
    """What hooks have not taken yet. For any thread; see ``alert_store.AlertStore``."""

    def waiting(self, hook: str, most: int) -> list[Notice]:
        """The oldest of it. Raises ``SpoiledNoticesError`` once where some cannot be read and were set aside."""
        ...

    def taken(self, hook: str, notices: Sequence[Notice]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait after the n-th failure in a row: doubled each time up to ``most_s``, half of it by chance."""

    first_s: float = 1.0
    most_s: float = 60.0
    chance: Callable[[], float] = random.random

    def pause_s(self, failures: int, asked_s: float) -> float:
        """Seconds; no less than the receiver asked for."""
        doubled_s = self.first_s * 2.0 ** min(failures - 1, 30)
        return max(min(asked_s, MAX_ASKED_S), min(self.most_s, doubled_s) * (0.5 + 0.5 * self.chance()))


class Dispatcher:
    """The thread of one hook. It ends by :meth:`finish`; what is left by then stays in the outbox."""

    def __init__(
        self,
        hook: Hook,
        outbox: Outbox,
        complaints: Complaints,
        backoff: Backoff | None = None,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.hook = hook
        self._outbox = outbox
        self._complaints = complaints
        self._backoff = backoff or Backoff()
        self._clock_ns = clock_ns
        self._there_is_more = threading.Event()
        self._ending = threading.Event()
        self._failures = 0
        self._alone = 0
        self._done: dict[tuple[str, int], Notice] = {}
        """Sent or dropped, and not struck out yet, by fingerprint and number."""
        # A hook that blocks must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"hook {hook.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """There is something in the outbox."""
        self._there_is_more.set()

    def finish(self, within_s: float) -> None:
        """Send what can be sent at once, then end; wait for that no longer than ``within_s``."""
        self._ending.set()
        self._there_is_more.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            self._there_is_more.clear()
            ending = self._ending.is_set()
            self._try_all()
            if ending:
                return
            self._there_is_more.wait(IDLE_S)

    def _try_all(self) -> None:
        """Send what there is. What goes wrong beside the hook (a full disk, a broken file) is told, and tried later."""
        try:
            self._send_all()
            self._strike_out()
        except Exception as error:
            self._complain(error)
            return
        self._complaints.end(self._outbox_name, f"{self._outbox_name}: works again")

    def _complain(self, error: Exception) -> None:
        # At the end the alert store is closed under us.
        if not self._ending.is_set():
            text = f"{self._outbox_name}: {type(error).__name__}: {error}; retrying"
            self._complaints.begin(self._outbox_name, text)

    @property
    def _outbox_name(self) -> str:
        return f"outbox of hook {self.hook.name}"

    def _send_all(self) -> None:
        """Until the outbox is empty, or the end has come and the receiver does not take it."""
        while notices := self._waiting():
            failure = self._sent(notices)
            if failure is None:
                self._struck(notices)
            elif failure.again:
                self._give_up(notices, failure)
                if self._paused(failure):
                    return
            elif len(notices) > 1:
                self._alone = len(notices)
            else:
                self._complaints.tell(f"{self._named(failure)}; rejected, dropped: {notices[0].summary}")
                self._struck(notices)

    def _waiting(self) -> list[Notice]:
        """The oldest that are not done with."""
        most = 1 if self._alone else self.hook.batch
        while True:
            try:
                waiting = self._outbox.waiting(self.hook.name, most + len(self._done))
                return [notice for notice in waiting if _key(notice) not in self._done][:most]
            except SpoiledNoticesError as error:
                self._complaints.tell(f"hook {self.hook.name}: {error}")

    def _sent(self, notices: Sequence[Notice]) -> HookError | None:
        try:
            self.hook.send(notices)
        except HookError as error:
            return error
        except BaseException as error:  # a hook from outside may raise anything, even an exit; its thread outlives it
            return HookError(f"{type(error).__name__}: {error}", again=True)
        return None

    def _struck(self, notices: Sequence[Notice]) -> None:
        self._finished_with(notices)
        self._failures = 0
        self._complaints.end(self.hook.name, f"hook {self.hook.name}: accepts notices again")

    def _finished_with(self, notices: Sequence[Notice]) -> None:
        """Never to be sent again, even where that cannot be written down yet."""
        self._done |= {_key(notice): notice for notice in notices}
        self._alone = max(0, self._alone - len(notices))
        try:
            self._strike_out()
        except Exception as error:  # what comes after need not wait for the disk
            self._complain(error)

    def _strike_out(self) -> None:
        if self._done:
            self._outbox.taken(self.hook.name, list(self._done.values()))
            self._done.clear()

    def _give_up(self, notices: Sequence[Notice], failure: HookError) -> None:
        """Drop those of ``notices`` that have been tried for a day."""
        oldest_ns = self._clock_ns() - GIVEN_UP_NS
        old = [notice for notice in notices if notice.told_ns < oldest_ns]
        if self._failures + 1 < MIN_TRIES or not old:
            return
        self._finished_with(old)
        for notice in old:
            self._complaints.tell(f"{self._named(failure)}; not accepted for a day, dropped: {notice.summary}")

    def _paused(self, failure: HookError) -> bool:
        """Wait before the next try; whether the end came meanwhile."""
        self._failures += 1
        kept = "its notices are kept and retried"
        hint = f"; hint: {failure.hint}" if failure.hint else ""
        self._complaints.begin(self.hook.name, f"{self._named(failure)}; {kept}{hint}")
        return self._ending.wait(self._backoff.pause_s(self._failures, failure.after_s))

    def _named(self, failure: HookError) -> str:
        words, name = str(failure), f"hook {self.hook.name}"
        return words if words.startswith(name) else f"{name}: {words}"


def _key(notice: Notice) -> tuple[str, int]:
    return notice.fingerprint, notice.number
