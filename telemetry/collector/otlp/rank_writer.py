"""Stores the OTLP spans of ranks as spans of ranks, beside ``otel_spans``, so that detectors read them at once.

    request --> spans of ranks --> those whose step is known, numbered --> ingest: ranks, spans --> answer

Rows of ranks are stored once, but OTLP is at-least-once. A rank's spans are numbered here. The numbers advance only
when the rows are acknowledged, so a request that is sent again gets the same numbers, and the store drops it. The ids
of the newest spans of each rank are kept, so a request whose answer was lost is dropped here.

A run that ranks record themselves is not changed: its ranks are announced with the time of their folder, those of OTLP
without.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pyarrow as pa
from anyio import to_thread

from telemetry.collector.ingest import Ingest
from telemetry.collector.otlp.rank_spans import RankSpan, Source, StepFinder, in_order
from telemetry.errors import RefusedRowsError
from telemetry.group_names import NO_PEER
from telemetry.printable import log, printable
from telemetry.stages import SpanClock, Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import HighWater
from telemetry.stores.queries.claims import RankOpenings
from telemetry.tables import NO_FOLDER, RANKS, SPANS
from telemetry.wire.codec import Batch

Key = tuple[str, int, int]
"""Run id, attempt and rank."""
MAX_STATES = 2**16
"""Ranks of all runs whose state is kept. The state of other ranks is read from the store again."""
MAX_RECENT = 512
"""Ids of a rank's newest spans that are remembered."""
_TOWARDS = {Stage.FORWARD_SEND: 1, Stage.BACKWARD_RECV: 1, Stage.BACKWARD_SEND: -1, Stage.FORWARD_RECV: -1}


@dataclass(slots=True)
class _State:
    """What is known about a rank."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_seq: int = 0
    is_read: bool = False
    is_refused: bool = False
    """Whether the rank records itself, or the store refuses its rows."""
    is_announced: bool = False
    last_step: int = -1
    """Number of the newest complete step. Earlier steps are left out: the job was started again."""
    finder: StepFinder = field(default_factory=StepFinder)
    recent: tuple[bytes, ...] = ()


class RankSpanWriter:
    """Converts OTLP spans of ranks and stores them. For the event loop of one server."""

    def __init__(self, reader: Reader, ingest: Ingest) -> None:
        self._reader = reader
        self._ingest = ingest
        self._states: OrderedDict[Key, _State] = OrderedDict()

    async def store(self, spans: Sequence[RankSpan]) -> None:
        """Store ``spans``. When this returns, they are stored, or wait for the end of their step.

        Raises:
            UnreachableError, QueueFullError: send the request again.
        """
        by_rank: dict[Key, list[RankSpan]] = {}
        for span in spans:
            by_rank.setdefault(span.source.key, []).append(span)
        async with AsyncExitStack() as held:
            states = {key: self._state(key) for key in sorted(by_rank)}
            for key, state in states.items():
                await held.enter_async_context(state.lock)
                if not state.is_read:
                    await to_thread.run_sync(self._read, key, state)
            used = [key for key, state in states.items() if not state.is_refused]
            tasks = (self._store_rank(by_rank[key], states[key]) for key in used)
            # All tasks end before the locks are released.
            for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
        self._prune()

    def _state(self, key: Key) -> _State:
        state = self._states.setdefault(key, _State())
        self._states.move_to_end(key)
        return state

    def _prune(self) -> None:
        """Forget the least recently used ranks beyond ``MAX_STATES``. A rank in use is kept."""
        while len(self._states) > MAX_STATES:
            key, state = self._states.popitem(last=False)
            if state.lock.locked():
                self._states[key] = state
                return

    def _read(self, key: Key, state: _State) -> None:
        """Read the next number of a rank, and whether it records itself, into ``state``."""
        run_id, attempt, rank = key
        stored = self._reader.read(HighWater(table="spans", run_id=run_id, attempt=attempt, ranks=(rank,)))
        opened = self._reader.read(RankOpenings(run_id=run_id, attempt=attempt, ranks=(rank,)))
        folders = {*stored["opened_ns"].to_pylist(), *opened["newest_opened_ns"].to_pylist()}
        state.next_seq = max(stored["next_seq"].to_pylist(), default=0)
        state.is_refused = bool(folders - {NO_FOLDER})
        state.is_read = True

    async def _store_rank(self, spans: Sequence[RankSpan], state: _State) -> None:
        """Store spans of one rank. The state changes once they are stored."""
        known = set(state.recent)
        new = [span for span in in_order(spans) if span.span_id not in known]
        finder = StepFinder(waiting=state.finder.waiting)
        ready = [span for span in finder.take(new) if _step(span) >= state.last_step + (span.stage is Stage.STEP)]
        if ready and not await self._put(ready, state):
            return
        state.finder = finder
        state.recent = (*state.recent, *(span.span_id for span in new))[-MAX_RECENT:]
        steps = (_step(span) for span in ready if span.stage is Stage.STEP)
        state.last_step = max(state.last_step, max(steps, default=-1))
        state.next_seq += len(ready)

    async def _put(self, spans: Sequence[RankSpan], state: _State) -> bool:
        """Store the rows of ``spans``. Returns False if the store refuses this rank."""
        source = spans[0].source
        try:
            if not state.is_announced:
                await self._submit(source, "ranks", rank_row(source, spans[0].start_ns))
                state.is_announced = True
            await self._submit(source, "spans", span_rows(spans, state.next_seq))
        except RefusedRowsError as error:
            state.is_refused = True
            log(f"rankscope collect: OTLP spans of {printable(source.run_id)} are not spans of ranks: {error.message}")
            return False
        return True

    async def _submit(self, source: Source, table: str, rows: pa.Table) -> None:
        batch = Batch(table=table, run_id=source.run_id, attempt=source.attempt, rows=rows)
        await asyncio.wrap_future(self._ingest.submit(batch))


def _step(span: RankSpan) -> int:
    return -1 if span.step is None else span.step


def rank_row(source: Source, started_ns: int) -> pa.Table:
    """The row of ``source`` in the table ``ranks``."""
    topology = source.topology
    row = {
        "rank": source.rank,
        "host": source.host,
        "local_rank": 0,
        "pid": 0,
        "dp_size": topology.dp,
        "pp_size": topology.pp,
        "tp_size": topology.tp,
        "mesh": str(topology),
        "started_ns": started_ns,
        "opened_ns": NO_FOLDER,
        "meta": json.dumps({"recorded_by": "opentelemetry"}),
    }
    return pa.Table.from_pylist([row], schema=RANKS)


def span_rows(spans: Sequence[RankSpan], first_seq: int) -> pa.Table:
    """Rows of ``spans``, numbered from ``first_seq`` in their order."""
    rows = [
        {
            "rank": span.source.rank,
            "seq": first_seq + place,
            "stage": int(span.stage),
            "stream": int(span.stage.stream),
            "step": _step(span),
            "microbatch": span.microbatch,
            "chunk": -1,
            "peer": _peer(span),
            "op_seq": 0,
            "start_ns": span.start_ns,
            "duration_ns": span.duration_ns,
            "cpu_ns": -1,
            "issue_ns": 0,
            "size_bytes": 0,
            "clock": int(SpanClock.HOST),
        }
        for place, span in enumerate(spans)
    ]
    return pa.Table.from_pylist(rows, schema=SPANS)


def _peer(span: RankSpan) -> int:
    """The neighbour along the pipeline, for a transfer; otherwise ``NO_PEER``."""
    towards, topology = _TOWARDS.get(span.stage, 0), span.source.topology
    if not towards or topology.pp < 2:
        return NO_PEER
    place = topology.place(span.source.rank)
    other = place.pp + towards
    return topology.rank(place._replace(pp=other)) if 0 <= other < topology.pp else NO_PEER
