"""A model of collectors that share one database. It runs in single steps, so that any order of steps can be tested.

Each collector is the real :class:`RowWriter` in a thread. The scheduler lets the thread run to its next step at the
database: register, check, send, store, claim, settle, read. Between steps, a collector may be paused for long, killed,
or lose its connection. An insert that it had sent then continues without it, and is stored later or never.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from telemetry.collector.counters import Counters
from telemetry.collector.writer import Outcome, RowWriter
from telemetry.errors import UnreachableError
from telemetry.stores.interface import Query
from telemetry.stores.queries import HighWater
from telemetry.stores.queries.claims import NUMBER_BITS, NewestClaims, RankOpenings
from telemetry.wire.codec import Ack, Batch

RUN = "run"
PATIENCE = 40
"""Steps that ``settle`` waits before it raises an error."""


class Killed(BaseException):
    """SIGKILL. No code may catch it and continue."""


class Thread:
    """A thread that runs one step for each call of ``advance``."""

    def __init__(self, body: Callable[["Thread"], None]) -> None:
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._killed = False
        self.over = False
        self._thread = threading.Thread(target=self._run, args=(body,))
        self._thread.start()

    def _run(self, body: Callable[["Thread"], None]) -> None:
        self._go.acquire()
        with suppress(Killed):
            body(self)
        self.over = True
        self._back.release()

    def advance(self) -> None:
        """Run the thread to its next step."""
        if not self.over:
            self._go.release()
            self._back.acquire()

    def pause(self) -> None:
        """Called in the thread: wait here, so that another thread can run."""
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def kill(self) -> None:
        self._killed = True
        while not self.over:
            self.advance()
        self._thread.join()


@dataclass(eq=False)
class Insert:
    """An insert that is registered in the database."""

    table: str
    rows: list[tuple[int, int]]
    sent: bool = False


@dataclass
class Database:
    """Rows of ranks, claims and running inserts. Each switch disables one part of the protocol."""

    chance: random.Random
    confirms: bool = True
    settles: bool = True
    fresh_marks: bool = True
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    claims: dict[int, int] = field(default_factory=dict)
    running: set[Insert] = field(default_factory=set)
    strays: list[Insert] = field(default_factory=list)
    """Running inserts whose collector no longer waits."""

    def store(self, insert: Insert) -> None:
        if insert.table == "claims":
            for rank, ballot in insert.rows:
                self.claims[rank] = max(ballot, self.claims.get(rank, 0))
        else:
            self.rows.update(insert.rows)

    def resolve_a_stray(self) -> None:
        """End one stray insert. It may be stored if it was sent, otherwise it is not."""
        if self.strays:
            insert = self.strays.pop(self.chance.randrange(len(self.strays)))
            if insert.sent and self.chance.random() < 0.5:
                self.store(insert)
            self.running.discard(insert)


class Connection:
    """A collector's connection to the database: its store and its reader."""

    def __init__(self, database: Database, thread: Thread, *, faults: Callable[[], bool]) -> None:
        self._database = database
        self._thread = thread
        self._faults = faults
        self._first_marks: dict[int, int] = {}

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        value = "ballot" if table == "claims" else "seq"
        insert = Insert(table, list(zip(rows["rank"].to_pylist(), rows[value].to_pylist(), strict=True)))
        self._step()
        self._database.running.add(insert)
        try:
            self._send(insert, confirm)
        except BaseException:
            self._database.strays.append(insert)
            raise
        self._database.running.discard(insert)
        self._step()

    def _send(self, insert: Insert, confirm: Callable[[], None] | None) -> None:
        self._step()
        if confirm and self._database.confirms:
            confirm()
        self._thread.pause()
        insert.sent = True
        self._step()
        self._database.store(insert)
        insert.sent = False
        self._thread.pause()

    def settle(self) -> None:
        self._step()
        awaited = set(self._database.running) if self._database.settles else set()
        for _ in range(PATIENCE):
            if not awaited & self._database.running:
                return
            self._thread.pause()
        raise UnreachableError("an insert still runs", hint="later")

    def read(self, query: Query) -> pa.Table:
        self._step()
        match query:
            case NewestClaims():
                answer = self._newest(query)
            case RankOpenings():
                answer = pa.table({"rank": pa.array([], pa.uint32())})
            case _:
                answer = self._marks(query)
        self._step()
        return answer

    def _newest(self, query: NewestClaims) -> pa.Table:
        number = 2**NUMBER_BITS - 1
        found = [
            (rank, ballot)
            for rank, ballot in self._database.claims.items()
            if rank in query.ranks and ballot & number != query.not_by
        ]
        return pa.table(
            {
                "run_id": pa.array([RUN] * len(found), pa.string()),
                "attempt": pa.array([0] * len(found), pa.uint32()),
                "rank": pa.array([rank for rank, _ in found], pa.uint32()),
                "newest": pa.array([ballot for _, ballot in found], pa.uint64()),
            }
        )

    def _marks(self, query: Query) -> pa.Table:
        assert isinstance(query, HighWater)
        marks = {
            rank: max((seq + 1 for one, seq in self._database.rows if one == rank), default=0) for rank in query.ranks
        }
        if not self._database.fresh_marks:
            marks = {rank: self._first_marks.setdefault(rank, mark) for rank, mark in marks.items()}
        return pa.table(
            {
                "rank": pa.array(marks, pa.uint32()),
                "opened_ns": pa.repeat(pa.scalar(0, pa.int64()), len(marks)),
                "next_seq": pa.array(marks.values(), pa.uint64()),
            }
        )

    def _step(self) -> None:
        """Let another thread run here. The connection may break."""
        self._thread.pause()
        if self._faults():
            raise UnreachableError("the connection broke", hint="later")

    def migrate(self) -> None: ...

    def query(self, *_: object) -> pa.Table:
        raise AssertionError("the model answers typed queries only")

    def close(self) -> None: ...


@dataclass(eq=False)
class Request:
    """A batch in a queue, and its outcome."""

    batch: Batch
    outcome: Outcome | None = None


class Collector:
    """A real writer in a thread of the model, with a queue."""

    def __init__(self, database: Database, *, faults: Callable[[], bool]) -> None:
        self._database = database
        self._faults = faults
        self.queue: list[Request] = []
        self.stopped_for = 0
        """Turns for which the collector is paused (SIGSTOP)."""
        self.idle = True
        self.thread = Thread(self._serve)

    def _serve(self, thread: Thread) -> None:
        connection = Connection(self._database, thread, faults=self._faults)
        writer = RowWriter(connection, connection, Counters())
        while True:
            group, self.queue = self.queue, []
            if group:
                self.idle = False
                outcomes = writer.store("spans", [request.batch for request in group])
                for request, outcome in zip(group, outcomes, strict=True):
                    request.outcome = outcome
            self.idle = not self.queue
            thread.pause()


@dataclass
class Agent:
    """Sends the rows of its ranks in order to any collector, again until they are acknowledged."""

    ranks: tuple[int, ...]
    num_rows: int
    chance: random.Random
    acked: int = 0
    _sent_to: int = 0
    _request: Request | None = None

    @property
    def done(self) -> bool:
        return self.acked == self.num_rows

    def act(self, collectors: list[Collector], database: Database) -> None:
        """Send a batch, read its outcome, or stop waiting for it."""
        if self._request is None:
            if not self.done:
                self._send(self.chance.choice(collectors))
        elif isinstance(self._request.outcome, Ack):
            self.acked = self._sent_to
            assert all(database.rows[rank, seq] for rank in self.ranks for seq in range(self.acked)), "lost"
            self._request = None
        elif self._request.outcome is not None or self.chance.random() < 0.05:
            self._request = None

    def _send(self, collector: Collector) -> None:
        self._sent_to = min(self.num_rows, self.acked + self.chance.randint(1, 4))
        count = self._sent_to - self.acked
        seq = np.arange(self.acked, self._sent_to, dtype=np.uint64)
        rows = pa.table(
            {
                "rank": np.repeat(np.array(self.ranks, np.uint32), count),
                "seq": np.tile(seq, len(self.ranks)),
                "stage": np.zeros(count * len(self.ranks), np.uint8),
                "step": np.tile(seq.astype(np.uint32), len(self.ranks)),
            }
        )
        self._request = Request(Batch(table="spans", run_id=RUN, attempt=0, rows=rows))
        collector.queue.append(self._request)


def play(seed: int, *, turns: int = 400, **switches: bool) -> None:
    """Run one schedule to its end.

    Raises:
        AssertionError: a row was stored twice, or an acknowledged row is missing.
    """
    chance = random.Random(seed)
    database = Database(chance, **switches)
    raging = True

    def faults() -> bool:
        return raging and chance.random() < 0.01

    agents = [Agent(ranks, 8, chance) for ranks in ((0,), (1,), (2, 3))]
    collectors = [Collector(database, faults=faults) for _ in range(2)]
    try:
        for _ in range(turns):
            _disturb(collectors, database, chance, faults)
            _turn(agents, collectors, database, chance)
        raging = False
        for _ in range(100 * turns):
            if all(agent.done for agent in agents) and all(one.idle and not one.queue for one in collectors):
                break
            _turn(agents, collectors, database, chance)
        assert all(agent.done for agent in agents), "stuck"
        expected = Counter((rank, seq) for agent in agents for rank in agent.ranks for seq in range(agent.num_rows))
        assert database.rows == expected, "doubled or lost"
    finally:
        for collector in collectors:
            collector.thread.kill()


def _turn(agents: list[Agent], collectors: list[Collector], database: Database, chance: random.Random) -> None:
    for collector in collectors:
        if collector.stopped_for:
            collector.stopped_for -= 1
        elif chance.random() < 0.8:
            collector.thread.advance()
    chance.choice(agents).act(collectors, database)
    if chance.random() < 0.05:
        database.resolve_a_stray()
    assert all(count == 1 for count in database.rows.values()), "doubled"


def _disturb(
    collectors: list[Collector], database: Database, chance: random.Random, faults: Callable[[], bool]
) -> None:
    number = chance.randrange(len(collectors))
    if chance.random() < 0.03:
        collectors[number].stopped_for = chance.randint(5, 60)
    if chance.random() < 0.01:
        collectors[number].thread.kill()
        collectors[number] = Collector(database, faults=faults)
