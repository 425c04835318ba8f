"""Typed queries and their cached answers.

An answer is kept for a query and the run's *freshness* (newest step, newest time). A page that polls
reaches the store only after new data has arrived, and twenty open pages share one query. A newer answer replaces the
older one: a live run takes no more memory than a finished one.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.stores.interface import Query, Reader
from telemetry.stores.queries import Heartbeats, Ranks, Steps
from ui.dashboard.data.cache import AnswerCache
from ui.dashboard.records import RunSummary

Answer = TypeVar("Answer")

KEPT_ANSWERS = 256
ANSWERS_BYTES = 128 * 2**20
KEPT_STEPS = 32
"""Number of attempts whose steps are kept."""
STEPS_BYTES = 64 * 2**20
"""Memory of the steps that are kept. A step takes 24 bytes."""
LIST_AGE_S = 1.0
"""The list of runs is queried at most this often."""
LONG_OVER_S = 3600.0
"""After this time without a heartbeat, the heartbeats of a run are not queried again."""


class StoreQueries:
    """Queries the store. Every method may block and may be called from any thread."""

    def __init__(self, reader: Reader, wall_s: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._wall_s = wall_s
        self._cache = AnswerCache(KEPT_ANSWERS, ANSWERS_BYTES)
        self._lock = threading.Lock()
        self._steps: OrderedDict[tuple[str, int, int | None], pa.Table] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """Memory of the cached answers."""
        with self._lock:
            return self._cache.held_bytes + sum(int(steps.nbytes) for steps in self._steps.values())

    def now_ns(self) -> int:
        """The time of the server, nanoseconds since the epoch."""
        return int(self._wall_s() * 1e9)

    def ask_all_runs(self, query: Query, *, age_s: float = LIST_AGE_S, known: Hashable = None) -> pa.Table:
        """The answer to a query that is not about a single run. It is at most ``age_s`` old and belongs to ``known``,
        a description of the stored data. The same query without a description has an answer of its own."""
        version = int(self._wall_s() / age_s), known
        key = "of all", age_s, known is None, cast(Hashable, query)
        return self._cache.get(key, lambda: self._reader.read(query), version=version)

    def kept(self, key: Hashable, work: Callable[[], Answer], version: Hashable) -> Answer:
        """The result of ``work()`` about a whole run, cached until ``version`` changes."""
        return self._cache.get(("kept", key), work, version=version)

    def ask(self, run: RunSummary, query: Query) -> pa.Table:
        """The answer to a query about an attempt, cached until new data arrives."""
        return self.cached(run, cast(Hashable, query), lambda: self._reader.read(query))

    def steps(self, run: RunSummary) -> pa.Table:
        """The answer to ``Steps`` of an attempt. Steps that every rank has completed are not queried again."""
        return self.cached(run, "steps", lambda: self._extended_steps(run))

    def _extended_steps(self, run: RunSummary) -> pa.Table:
        ranks = self.ask_each_second(Ranks(**run.key), run.last_ns)
        began_ns = pc.max(ranks["started_ns"]).as_py()  # ranks that start the attempt again record its steps again
        key = run.run_id, run.attempt, began_ns
        with self._lock:
            known = self._steps.get(key)
        settled = None if known is None else known.slice(0, _num_settled(known, run.num_ranks))
        first = int(settled["step"][-1].as_py()) + 1 if settled else 0
        newer = self._reader.read(Steps(**run.key, first_step=first))
        steps = pa.concat_tables([settled, newer]).combine_chunks() if settled else newer
        with self._lock:
            self._steps[key] = steps
            self._steps.move_to_end(key)
            self._drop_oldest_steps()
        return steps.slice(int(np.searchsorted(steps["step"].to_numpy(), run.first_step)))

    def _drop_oldest_steps(self) -> None:
        num_bytes = sum(steps.nbytes for steps in self._steps.values())
        while len(self._steps) > KEPT_STEPS or (num_bytes > STEPS_BYTES and len(self._steps) > 1):
            num_bytes -= self._steps.popitem(last=False)[1].nbytes

    def ask_each_second(self, query: Query, last_ns: int) -> pa.Table:
        """The answer to a query about heartbeats, at most a second old. ``last_ns``: when data of the run last arrived.
        If that is more than LONG_OVER_S ago, the query is not repeated."""
        now_s = self._wall_s()
        version = last_ns if now_s - last_ns / 1e9 > LONG_OVER_S else int(now_s / LIST_AGE_S)
        key = "now and then", cast(Hashable, query)
        return self._cache.get(key, lambda: self._reader.read(query), version=version)

    def compute(self, run: RunSummary, key: Hashable, work: Callable[[Reader], Answer]) -> Answer:
        """The result of ``work``, which can send several queries about an attempt. Cached until new data arrives."""
        return self.cached(run, key, lambda: work(self.reader_of(run)))

    def reader_of(self, run: RunSummary) -> Reader:
        """A reader for an analysis of an attempt. It shares cached answers with the pages."""
        return _SharingReader(self, self._reader, run)

    def cached(self, run: RunSummary, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The result of ``work()`` about an attempt, cached until new data arrives."""
        return self._cache.get((run.run_id, run.attempt, key), work, version=(run.last_step, run.last_ns))


def _num_settled(steps: pa.Table, num_ranks: int) -> int:
    """The number of leading steps that every rank has completed. Their times do not change."""
    unsettled = np.flatnonzero(steps["num_ranks"].to_numpy() < num_ranks)
    return int(unsettled[0]) if len(unsettled) else steps.num_rows


class _SharingReader:
    """A reader that shares cached answers with the pages."""

    def __init__(self, queries: StoreQueries, reader: Reader, run: RunSummary) -> None:
        self._queries = queries
        self._reader = reader
        self._run = run

    def read(self, query: Query) -> pa.Table:
        match query:
            case Steps() if query == Steps(**self._run.key):
                return self._queries.steps(self._run)
            case Ranks() | Heartbeats():
                return self._queries.ask_each_second(query, self._run.last_ns)
            case _:
                return self._reader.read(query)
