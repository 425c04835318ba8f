"""Pauses before a process that died is started again.

start -> dies -> 1 s -> start -> dies -> 2 s -> start -> dies -> 4 s ... 60 s -> start -> lives 60 s, dies -> 1 s
"""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
LONG_LIFE_S = 60.0
"""After a life of this length the cause was not the start: the pauses begin again with the first."""


class RestartPauses:
    """How long to wait before each restart of one process. Times are of any clock that only goes forward, seconds."""

    def __init__(self, first_s: float = FIRST_PAUSE_S) -> None:
        assert first_s > 0, "a pause of 0 s would never grow"
        self._first_s = first_s
        self._next_s = first_s
        self._started_s: float | None = None

    def started(self, now_s: float) -> None:
        """The process has started."""
        self._started_s = now_s

    def after_death(self, now_s: float) -> float:
        """The pause, now that the process has ended or could not be started."""
        if self._started_s is not None and now_s - self._started_s >= LONG_LIFE_S:
            self._next_s = self._first_s
        self._started_s = None
        pause_s, self._next_s = self._next_s, min(LONGEST_PAUSE_S, 2 * self._next_s)
        return pause_s
