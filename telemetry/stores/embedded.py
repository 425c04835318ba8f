"""ClickHouse inside this process: a folder, or memory.

Only one process can open a folder, and a process can open only one folder. Other processes query the collector that
has opened it. Do not fork after opening: the child has no threads of the engine, and hangs.

On a full disk the engine may report an insert as stored although its files are incomplete (``whole_parts.py``):

    insert --> all new parts complete?  yes: stored
                  `-- no: raise; before the next insert or claim: close the engine, wait for free space, move
                      the torn part away, open the engine
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from weakref import ref

import pyarrow as pa

from telemetry.errors import RankscopeError, UnreachableError
from telemetry.printable import log
from telemetry.stores import inserts, migrations, retention
from telemetry.stores.engine import ChdbError, Session, release_memory, with_small_caches
from telemetry.stores.inserts import render
from telemetry.stores.interface import Parameter
from telemetry.stores.pool import Pool, bounded, fault_of_question
from telemetry.stores.whole_parts import WholeParts, check_free, check_room, set_aside

DATABASE = "rankscope"
IN_MEMORY = ":memory:"
RELEASE_S = 10.0
CHECK_EVERY = 6
CHECK_S = CHECK_EVERY * RELEASE_S
"""Seconds between two checks of the parts. Parts that were merged into a torn part are kept for eight minutes."""
NUM_SESSIONS = 4
"""Sessions that run in parallel. Each session needs memory."""

_ONE_PART = (
    "async_insert = 0, max_threads = 1, max_insert_threads = 1, "
    "min_insert_block_size_rows = 1000000000, min_insert_block_size_bytes = 0"
)
"""One reader, and no limit for merged blocks: an insert becomes one part, stored completely or not at all."""

_COMPILE_LATE = ", ".join(
    f"min_count_to_compile_{what} = 100" for what in ("expression", "aggregate_expression", "sort_description")
)
"""Settings: the engine compiles an expression after 100 queries instead of 3. With millions of spans, compiled queries
are not faster yet, and the compilation of an expression takes 40 to 170 ms of processor time."""

_memory_numbers = itertools.count(1)


class EmbeddedStore:
    """A store in this process.

    Args:
        folder: created if missing. If None, the store is in memory, and :meth:`close` deletes it.

    Raises:
        UnreachableError: another process holds the folder.
        UsageError: the folder cannot be created or written, or belongs to another user.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._pid = os.getpid()
        self._folder = folder.resolve() if folder else None
        self._database = DATABASE if folder else f"memory_{next(_memory_numbers)}"
        self._anchor: Session | None = None
        self._parts = WholeParts(self._folder) if self._folder else None
        self._torn: set[Path] = set()
        self._repairing = threading.Lock()
        self._pool: Pool[Session] = Pool(connect=self._connect, disconnect=Session.close, size=NUM_SESSIONS)
        self._inserts = itertools.count()
        self._running: set[int] = set()
        self._ended = threading.Condition()
        self._closed = threading.Event()
        self._open()
        if self._folder:
            watch = threading.Thread(target=_watch, args=(ref(self), self._closed), daemon=True)
            watch.start()

    def migrate(self, *, limits: retention.Limits = retention.NO_CHANGE) -> None:
        if self._folder:
            check_room(self._folder)
        migrations.migrate(self.database)
        retention.retain(self.database, limits)

    def plan(self, *, limits: retention.Limits = retention.NO_CHANGE) -> list[str]:
        return migrations.plan(self.database) + retention.plan(self.database, limits)

    @property
    def database(self) -> migrations.Database:
        """The database, for the scripts of the schema."""
        return migrations.Database(execute=self._execute, query=self.query, name=self._database, has_one_owner=True)

    def insert(self, table: str, rows: pa.Table, *, confirm: Callable[[], None] | None = None) -> None:
        with self._registered():
            self._repair()
            if confirm:
                confirm()
            with self._translated(f"insert into {table}"), self._pool.borrow() as session:
                session.insert(table, rows, _ONE_PART)
                # Before the session is returned: a repair waits for the session, and moves torn parts away.
                self._refuse_torn(table)

    def settle(self) -> None:
        """Wait for inserts of this process: no other process can insert into the folder."""
        self.repair_parts()
        with self._ended:
            before = set(self._running)
            if not self._ended.wait_for(lambda: not before & self._running, inserts.SETTLE_S):
                raise UnreachableError(
                    f"an insert still runs after {inserts.SETTLE_S:.0f} s", hint="check the speed of the disk"
                )

    def query(
        self, sql: str, parameters: Mapping[str, Parameter] | None = None, *, max_seconds: float | None = None
    ) -> pa.Table:
        with self._translated("query"), self._pool.borrow() as session:
            return session.query(bounded(render(sql, parameters), max_seconds))

    def close(self) -> None:
        with self._repairing:
            self._closed.set()
            self._pool.close()
            if self._anchor is None:
                return
            if self._folder is None:
                with suppress(ChdbError, RuntimeError):  # also at the end of the process
                    self._anchor.execute(f"DROP DATABASE IF EXISTS {self._database}")
            self._anchor.close()
            self._anchor = None

    def _open(self) -> None:
        """Start the engine after torn parts are moved away."""
        if self._folder:
            check_free(self._folder)
        for part in sorted(self._find_torn()):  # parts that other threads find meanwhile are handled next time
            set_aside(part)
            log(f"rankscope: the disk was full: moved away {part}, which is incomplete")
        with self._translated("open"):
            # The engine runs while at least one session is open. This session stays open.
            self._anchor = Session(with_small_caches(str(self._folder) if self._folder else IN_MEMORY))
            self._anchor.execute(f"CREATE DATABASE IF NOT EXISTS {self._database}")
        self._torn = set()

    def repair_parts(self) -> None:
        """Find torn parts, and repair the store if there is enough free space.

        Raises:
            UnreachableError: there is not enough free space.
        """
        self._find_torn()
        self._repair()

    def release_memory(self) -> None:
        """Return freed memory of the engine to the system."""
        with self._translated("release memory"), self._pool.borrow() as session:
            release_memory(session)

    def _refuse_torn(self, table: str) -> None:
        if torn := self._find_torn():
            raise UnreachableError(
                f"embedded store {self._folder} rejects inserts into {table}: the disk is full, and "
                f"{len(torn)} parts of the store are incomplete",
                hint="free disk space. The store then repairs itself. No acknowledged row is lost",
            )

    def _find_torn(self) -> set[Path]:
        """Incomplete parts, written by inserts or by merges of the engine."""
        if self._parts:
            self._torn.update(self._parts.find_torn())
        return self._torn

    def _repair(self) -> None:
        """Reopen the engine if it treats torn parts as complete.

        Raises:
            UnreachableError: the disk still has too little room.
        """
        if not self._torn:
            return
        with self._repairing:
            if not self._torn or self._closed.is_set():
                return
            assert self._folder
            with self._pool.emptied():
                if self._anchor is not None:  # while the engine runs, it deletes parts that were merged
                    self._anchor.close()
                    self._anchor = None
                check_room(self._folder)
                self._open()

    def _connect(self) -> Session:
        if self._anchor is None:
            if self._closed.is_set():
                raise UnreachableError(
                    f"embedded store {self._folder or 'in memory'} is closed",
                    hint="the previous owner is shutting down. Retry",
                )
            raise UnreachableError(
                f"embedded store {self._folder} is closed: the disk is full, and parts of the store are incomplete",
                hint="free disk space. The store then repairs itself. No acknowledged row is lost",
            )
        assert os.getpid() == self._pid, "a store does not survive fork: open one in the child, or ask the collector"
        session = Session(str(self._folder) if self._folder else IN_MEMORY)
        session.execute(f"SET {_COMPILE_LATE}")
        session.execute(f"USE {self._database}")
        return session

    def _execute(self, sql: str) -> None:
        with self._translated("migrate"), self._pool.borrow() as session:
            session.execute(sql)

    @contextmanager
    def _registered(self) -> Iterator[None]:
        """Register an insert for the block: :meth:`settle` waits for it."""
        number = next(self._inserts)
        with self._ended:
            self._running.add(number)
        try:
            yield
        finally:
            with self._ended:
                self._running.discard(number)
                self._ended.notify_all()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """Convert the engine's errors to rankscope's."""
        try:
            yield
        except RuntimeError as error:
            if what == "query" and (fault := fault_of_question(str(error))):
                raise fault from error
            where = str(self._folder or "memory")
            raise UnreachableError(
                f"embedded store {where}: {what} failed: {_first_line(error)}", hint=_hint(error)
            ) from error


def _watch(store: "ref[EmbeddedStore]", closed: threading.Event) -> None:
    """Release memory and check parts for as long as the store is in use."""
    for number in itertools.count(1):
        if closed.wait(RELEASE_S) or (found := store()) is None:
            return
        with suppress(RankscopeError, OSError):
            if number % CHECK_EVERY == 0:
                found.repair_parts()
        with suppress(RankscopeError):
            found.release_memory()
        del found


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _hint(error: RuntimeError) -> str:
    text = str(error)
    if "already initialized" in text:
        return "a process can open one folder at a time: close the other store, or use a collector"
    if "Error initializing" in text:
        return "another process may have the folder open: use its collector, e.g. --store http://127.0.0.1:8719"
    if "NOT_ENOUGH_SPACE" in text or "No space left" in text:
        return "the disk is full: free some space; no acknowledged row is lost"
    return "see the engine's message; `rankscope doctor` checks this machine"
