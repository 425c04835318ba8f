"""Troubles of the watcher itself, told once each: when they begin, and when they are over."""

import threading
from collections.abc import Callable
from contextlib import suppress

Say = Callable[[str], None]
"""Tells people a line: standard error."""


class Complaints:
    """What is wrong now, by its name. For any thread. Where ``say`` raises, nobody can be told of that either."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._standing: dict[str, str] = {}

    def tell(self, text: str) -> None:
        """Something that happens once."""
        with suppress(Exception):
            self._say(text)

    def begin(self, name: str, text: str) -> None:
        """``text`` is wrong. Told unless it was said last time, too."""
        with self._lock:
            if self._standing.get(name) == text:
                return
            self._standing[name] = text
        self.tell(text)

    def end(self, name: str, text: str) -> None:
        """``name`` is well again. Told if something was wrong."""
        with self._lock:
            was_wrong = self._standing.pop(name, None) is not None
        if was_wrong:
            self.tell(text)

    def forget_all_but(self, prefix: str, names: frozenset[str]) -> None:
        """Those under ``prefix`` that are not among ``names`` are of no interest any more."""
        with self._lock:
            for name in [name for name in self._standing if name.startswith(prefix) and name not in names]:
                del self._standing[name]
