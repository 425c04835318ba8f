"""The metrics of runs for ``/metrics`` of a collector: cheap for the store, however often they are requested.

scrape --> older than 30 s?  no --> the values before
                             yes -> a thread reads the store; the scrape waits at most 2 s for it
                                      answered later, or with an error: this scrape gets the values before
           older than 5 min: no values, so that a monitoring system does not see old ones as current
"""

import threading
import time
from collections.abc import Callable, Iterable

from prometheus_client import Metric

from diagnose.metrics.families import families
from diagnose.metrics.reading import Reading, read_runs
from telemetry.errors import RankscopeError
from telemetry.printable import log
from telemetry.stores.interface import Reader

EVERY_S = 30.0
"""The store is queried at most once in this time, and only if the metrics are requested."""
WAIT_S = 2.0
"""Longest time that a scrape waits for the store. Prometheus allows a scrape ten seconds, for all metrics together."""
MAX_AGE_S = 300.0


class RunMetrics:
    """A collector in the sense of the Prometheus client. For any thread. It never raises."""

    def __init__(
        self,
        reader: Reader,
        wall_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
        wait_s: float = WAIT_S,
    ) -> None:
        self._reader = reader
        self._wall_s = wall_s
        self._clock_s = clock_s
        self._wait_s = wait_s
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._read_s = -MAX_AGE_S
        """When the reading was complete."""
        self._asked_s = -EVERY_S
        self._done = threading.Event()
        self._done.set()
        self._has_failed = False

    def describe(self) -> Iterable[Metric]:
        """The metrics without values. The client calls it once, and the store is not queried."""
        return families(None)

    def collect(self) -> Iterable[Metric]:
        """The newest values. Waits at most ``wait_s`` for the store."""
        with self._lock:
            if self._done.is_set() and self._clock_s() - self._asked_s >= EVERY_S:
                self._asked_s = self._clock_s()
                self._done.clear()
                threading.Thread(target=self._read, name="rankscope-metrics", daemon=True).start()
        self._done.wait(self._wait_s)
        with self._lock:
            is_old = self._clock_s() - self._read_s >= MAX_AGE_S
            return families(None if is_old else self._reading)

    def _read(self) -> None:
        try:
            reading = read_runs(self._reader, int(self._wall_s() * 1e9))
            with self._lock:
                self._reading, self._read_s = reading, self._clock_s()
            self._has_failed = False
        except Exception as error:  # a scrape must show the other metrics
            self._report(error)
        finally:
            self._done.set()

    def _report(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        if not self._has_failed:
            reason = error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"
            log(f"rankscope collect: the metrics of runs cannot be read: {reason}")
        self._has_failed = True
