"""The clocks of one attempt for each window of steps, and the collector's thread that stores them in ``host_clocks``.

steps    0        64       128      192  200        windows of a power of two steps that last a minute or more:
         |--------|--------|--------|---->          the same for every process that estimates, at any time

every half minute    Runs --> those with new rows --> newest two windows --> align --> host_clocks

The queries are bounded (``stored_evidence.py``). The thread may be killed at any moment: this or another collector
estimates the same windows again, and the newest estimate is used.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from telemetry.clocks.align import align
from telemetry.clocks.align_evidence import HostClock
from telemetry.clocks.stored_evidence import Window, choose_places, read_evidence
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.printable import log, one_line
from telemetry.records import topology_of
from telemetry.run_names import Attempt
from telemetry.stores.interface import Reader, Store, StoreReader
from telemetry.stores.queries import Ranks, Runs, Steps
from telemetry.tables import HOST_CLOCKS, owned
from telemetry.topology import Topology

ALIVE_NS = 600_000_000_000
"""Runs without new rows for longer are skipped."""
CLOSE_S = 5.0
MAX_SHARE = 0.05
"""Largest share of the time that rounds may take. After a long round, the pause is longer."""

WINDOW_S = 60.0
USUAL_STEPS = 256
"""Newest steps that determine the usual duration of a step."""
ENOUGH = 0.5
"""Part of a window that must be complete before it is estimated, unless it is the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The clocks of all hosts in one window."""

    window: Window
    clocks: tuple[HostClock, ...]

    def rows(self, estimated_ns: int) -> pa.Table:
        """Columns of ``telemetry.tables.HOST_CLOCKS``."""
        steps = {"first_step": self.window.first_step, "last_step": self.window.last_step}
        rows = [asdict(clock) | steps | {"estimated_ns": estimated_ns} for clock in self.clocks]
        return pa.Table.from_pylist(rows, schema=HOST_CLOCKS)


def estimate_newest(reader: Reader, run_id: str, attempt: int, last_step: int, *, most: int = 2) -> Iterator[Estimate]:
    """Estimates of the newest ``most`` windows up to ``last_step``, the oldest first. Empty for a job on one host.

    Raises:
        UnreachableError: the store does not answer.
    """
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if ranks.num_rows:
        topology = topology_of(ranks)
        hosts = _hosts(ranks, topology)
        if len(set(hosts) - {""}) > 1:
            places = choose_places(topology, hosts)
            for window in _windows(reader, run_id, attempt, last_step, most):
                yield Estimate(window=window, clocks=tuple(align(read_evidence(reader, window, places, hosts))))


def end_of_window(step: int, step_ns: float, newest_step: int) -> int:
    """The last step of the window that contains ``step``, or ``newest_step`` if the window is not complete.

    ``step_ns``: the usual duration of a step near ``step``.
    """
    size = _size(step_ns)
    return min(newest_step, step // size * size + size - 1)


def _size(step_ns: float) -> int:
    """The number of steps in a window."""
    return int(2 ** np.ceil(np.log2(max(1.0, WINDOW_S * 1e9 / max(1.0, step_ns)))))


def _hosts(ranks: pa.Table, topology: Topology) -> tuple[str, ...]:
    hosts = [""] * topology.world_size
    for rank, host in zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True):
        if rank < topology.world_size:
            hosts[rank] = host
    return tuple(hosts)


def _windows(reader: Reader, run_id: str, attempt: int, last_step: int, most: int) -> list[Window]:
    first_step = max(0, last_step - USUAL_STEPS)
    steps = reader.read(Steps(run_id=run_id, attempt=attempt, first_step=first_step, last_step=last_step))
    if not steps.num_rows:
        return []
    step_ns = max(1.0, float(np.median(steps["duration_ns"].to_numpy())))
    size = _size(step_ns)
    last_ns = int(steps["start_ns"].to_numpy()[-1] + step_ns)
    firsts = [first for first in range(last_step // size * size, -1, -size)][: most + 1]
    if len(firsts) > 1 and last_step - firsts[0] + 1 < ENOUGH * size:
        firsts = firsts[1:]
    return [
        Window(
            run_id=run_id,
            attempt=attempt,
            first_step=first,
            last_step=(last := min(last_step, first + size - 1)),
            first_ns=last_ns - round((last_step - first + 1) * step_ns),
            last_ns=last_ns - round((last_step - last) * step_ns),
        )
        for first in reversed(firsts[:most])
    ]


class ClockKeeper:
    """Estimates and stores clocks in a thread, from :meth:`start` to :meth:`close`. If ``every_s`` is 0, there is no
    thread."""

    def __init__(self, store: Store, *, every_s: float, clock: Callable[[], int] = time.time_ns) -> None:
        self._store = store
        self._reader = StoreReader(store)
        self._every_s = every_s
        self._clock = clock
        self._known: dict[Attempt, int] = {}
        """Time of the newest row of each run, in the previous round."""
        self._logged: set[Attempt] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-clocks", daemon=True)

    def start(self) -> None:
        if self._every_s > 0:
            self._thread.start()

    def close(self) -> None:
        """End the thread. Waits for at most ``CLOSE_S``. Safe to repeat."""
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
                stored += self._estimate(attempt, row["last_step"])
                self._known[attempt] = row["last_ns"]
        self._known = {attempt: last_ns for attempt, last_ns in self._known.items() if attempt in alive}
        self._logged &= alive.keys()
        return stored

    def _estimate(self, attempt: Attempt, last_step: int) -> int:
        """Estimate and store the newest windows of a run. Returns their number. A defect does not affect other runs."""
        stored = 0
        try:
            for estimate in estimate_newest(self._reader, *attempt, last_step):
                self._store.insert("host_clocks", owned(estimate.rows(self._clock()), *attempt))
                stored += 1
        except UnreachableError:
            raise
        except Exception as error:
            if attempt not in self._logged:
                self._logged.add(attempt)
                _log(f"run {attempt[0]!r}, attempt {attempt[1]}: {type(error).__name__}: {error}")
        return stored

    def _run(self) -> None:
        took_s = 0.0
        while not self._stop.wait(max(self._every_s, took_s / MAX_SHARE)):
            began_s = time.monotonic()
            try:
                self.update()
            except RankscopeError:
                continue  # the store does not answer: the next round retries
            except Exception as error:  # a defect must not end the thread or the collector
                _log(f"{type(error).__name__}: {error}")
            finally:
                took_s = time.monotonic() - began_s


def _log(message: str) -> None:
    log(f"rankscope collect: clocks: {one_line(message, 300)}")
