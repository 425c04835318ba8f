"""Typed queries in, tables out; the newest answers are cached.

An answer is kept for a query and the run's *freshness* (newest step, newest stamp). A page that polls
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
from ui.dashboard.cache import AnswerCache
from ui.dashboard.records import RunSummary

Answer = TypeVar("Answer")

KEPT_ANSWERS = 256
ANSWERS_BYTES = 128 * 2**20
KEPT_STEPS = 32
"""Attempts whose steps are kept."""
STEPS_BYTES = 64 * 2**20
"""Of the steps that are kept; a step takes 24 bytes."""
LIST_AGE_S = 1.0
"""The list of runs is asked for at most this often."""
LONG_OVER_S = 3600.0
"""A run not heard of for so long says nothing new of itself."""


class Asking:
    """Who asks the store. Every method may block and may be called from any thread."""

    def __init__(self, reader: Reader, wall_s: Callable[[], float] = time.time) -> None:
        self._reader = reader
        self._wall_s = wall_s
        self._cache = AnswerCache(KEPT_ANSWERS, ANSWERS_BYTES)
        self._lock = threading.Lock()
        self._steps: OrderedDict[tuple[str, int, int | None], pa.Table] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """Memory that the answers take."""
        with self._lock:
            return self._cache.held_bytes + sum(int(steps.nbytes) for steps in self._steps.values())

    def now_ns(self) -> int:
        """What time it is, in nanoseconds since the epoch."""
        return int(self._wall_s() * 1e9)

    def ask_of_all(self, query: Query, *, age_s: float = LIST_AGE_S, known: Hashable = None) -> pa.Table:
        """The answer to a question that is about no one run, at most so old, and given when what is stored was as
        ``known``."""
        age = int(self._wall_s() / age_s)
        key = "of all", age_s, cast(Hashable, query)
        return self._cache.get(key, lambda: self._reader.read(query), version=(age, known))

    def ask(self, run: RunSummary, query: Query) -> pa.Table:
        """The answer to a question about an attempt, kept until something has arrived."""
        return self.kept(run, cast(Hashable, query), lambda: self._reader.read(query))

    def steps(self, run: RunSummary) -> pa.Table:
        """The answer to ``Steps`` of an attempt. Of one that goes on only what is not known for good is asked for: from
        the first step on that some rank has not ended."""
        return self.kept(run, "steps", lambda: self._grown_steps(run))

    def _grown_steps(self, run: RunSummary) -> pa.Table:
        ranks = self.ask_now_and_then(Ranks(run_id=run.run_id, attempt=run.attempt), run.last_ns)
        began_ns = pc.max(ranks["started_ns"]).as_py()  # ranks that begin the attempt again record its steps anew
        key = run.run_id, run.attempt, began_ns
        with self._lock:
            known = self._steps.get(key)
        settled = None if known is None else known.slice(0, _num_settled(known, run.num_ranks))
        first = int(settled["step"][-1].as_py()) + 1 if settled else 0
        newer = self._reader.read(Steps(run_id=run.run_id, attempt=run.attempt, first_step=first))
        steps = pa.concat_tables([settled, newer]).combine_chunks() if settled else newer
        with self._lock:
            self._steps[key] = steps
            self._steps.move_to_end(key)
            self._drop_oldest_steps()
        return steps.slice(int(np.searchsorted(steps["step"].to_numpy(), run.first_step)))

    def _drop_oldest_steps(self) -> None:
        held = sum(steps.nbytes for steps in self._steps.values())
        while len(self._steps) > KEPT_STEPS or (held > STEPS_BYTES and len(self._steps) > 1):
            held -= self._steps.popitem(last=False)[1].nbytes

    def ask_now_and_then(self, query: Query, last_ns: int) -> pa.Table:
        """The answer to a question about what ranks say of themselves: asked for every second while the run may still
        say something, once when it is long over. ``last_ns``: when it was last heard of."""
        now_s = self._wall_s()
        age = last_ns if now_s - last_ns / 1e9 > LONG_OVER_S else int(now_s / LIST_AGE_S)
        key = "now and then", cast(Hashable, query)
        return self._cache.get(key, lambda: self._reader.read(query), version=age)

    def work_out(self, run: RunSummary, key: Hashable, work: Callable[[Reader], Answer]) -> Answer:
        """What ``work`` makes of several questions, kept under ``key`` likewise."""
        return self.kept(run, key, lambda: work(self.reader_of(run)))

    def reader_of(self, run: RunSummary) -> Reader:
        """For whoever asks about an attempt on behalf of a page: what pages ask, too, is asked once."""
        return _Sharing(self, self._reader, run)

    def kept(self, run: RunSummary, key: Hashable, work: Callable[[], Answer]) -> Answer:
        """The answer of ``work()`` about an attempt, kept under ``key`` likewise."""
        return self._cache.get((run.run_id, run.attempt, key), work, version=(run.last_step, run.last_ns))


def _num_settled(steps: pa.Table, num_ranks: int) -> int:
    """How many of the first steps every rank has ended: their times stay as they are."""
    unsettled = np.flatnonzero(steps["num_ranks"].to_numpy() < num_ranks)
    return int(unsettled[0]) if len(unsettled) else steps.num_rows


class _Sharing:
    """A reader that has answers in common with pages."""

    def __init__(self, asking: Asking, reader: Reader, run: RunSummary) -> None:
        self._asking = asking
        self._reader = reader
        self._run = run

    def read(self, query: Query) -> pa.Table:
        match query:
            case Steps() if query == Steps(run_id=self._run.run_id, attempt=self._run.attempt):
                return self._asking.steps(self._run)
            case Ranks() | Heartbeats():
                return self._asking.ask_now_and_then(query, self._run.last_ns)
            case _:
                return self._reader.read(query)
