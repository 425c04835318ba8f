"""The collector's thread that updates the table ``host_clocks``: periodically, for the newest windows of active runs.

    every half minute    Runs --> those with new rows --> newest two windows --> align --> host_clocks

Its queries are bounded (``telemetry/clocks/stored_evidence.py``). It may be killed at any moment: this or another
collector estimates the same windows again, and the newest estimate counts.
"""

import threading
import time
from collections.abc import Callable

from telemetry.clocks.windows import estimate_newest
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.printable import log, one_line
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.queries import Runs
from telemetry.tables import owned

ALIVE_NS = 600_000_000_000
"""A run that was silent for longer is left alone."""
CLOSE_S = 5.0
MAX_SHARE = 0.05
"""Of one core: a round that takes long is followed by a longer rest."""

Attempt = tuple[str, int]


class ClockKeeper:
    """From :meth:`start` to :meth:`close` a thread. ``every_s`` of 0: none."""

    def __init__(self, store: Store, *, every_s: float, clock: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._reader = StoreReader(store)
        self._every_s = every_s
        self._clock = clock
        self._known: dict[Attempt, int] = {}
        """When each run was last heard of, as of the round before."""
        self._logged: set[Attempt] = set()
        """Of which it was said that something is wrong."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-clocks", daemon=True)

    def start(self) -> None:
        if self._every_s > 0:
            self._thread.start()

    def close(self) -> None:
        """End the thread; a round that takes long is left to its end. Safe to repeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def update(self) -> int:
        """Estimate windows with new rows. Returns the number of stored windows.

        Raises:
            UnreachableError: the store does not answer.
        """
        runs = self._reader.read(Runs()).to_pylist()
        alive = {(row["run_id"], row["attempt"]): row for row in runs if self._clock() - row["last_ns"] < ALIVE_NS}
        stored = 0
        for attempt, row in alive.items():
            if self._known.get(attempt) != row["last_ns"] and not self._stop.is_set():
                stored += self._try(attempt, row["last_step"])
                self._known[attempt] = row["last_ns"]
        self._known = {attempt: last_ns for attempt, last_ns in self._known.items() if attempt in alive}
        self._logged &= alive.keys()
        return stored

    def _try(self, attempt: Attempt, last_step: int) -> int:
        """One run that makes no sense keeps no other from being aligned."""
        try:
            return self._estimate(attempt, last_step)
        except UnreachableError:
            raise
        except Exception as error:
            if attempt not in self._logged:
                self._logged.add(attempt)
                _log(f"run {attempt[0]!r}, attempt {attempt[1]}: {type(error).__name__}: {error}")
            return 0

    def _estimate(self, attempt: Attempt, last_step: int) -> int:
        stored = 0
        for estimate in estimate_newest(self._reader, *attempt, last_step):
            self._store.insert("host_clocks", owned(estimate.rows(self._clock()), *attempt))
            stored += 1
        return stored

    def _run(self) -> None:
        took_s = 0.0
        while not self._stop.wait(max(self._every_s, took_s / MAX_SHARE)):
            began_s = time.monotonic()
            try:
                self.update()
            except RankscopeError:
                continue  # the store is away: the next round retries
            except Exception as error:  # a defect must not end the thread or the collector
                _log(f"{type(error).__name__}: {error}")
            finally:
                took_s = time.monotonic() - began_s


def _log(message: str) -> None:
    log(f"rankscope collect: clocks: {one_line(message, 300)}")
