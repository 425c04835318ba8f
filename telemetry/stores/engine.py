"""The embedded engine, chdb: imported here only, so that it does not change the process around it.

signals     chdb installs handlers for SIGSEGV, SIGABRT, SIGTSTP and others, and blocks SIGPIPE. Both are undone here:
            a crash shows its stack, and child processes get the usual signals.
inserts     are read from a file in memory. chdb can also read Python objects, but it changes their reference counts
            without the lock of the interpreter. This can crash the process.
answers     are copied: chdb frees its own copy, although views of it exist.
caches      hold what was read from parts. Their usual limits are gigabytes, for a dedicated server.
allocator   keeps freed pages until the next allocation. An idle engine would keep the pages of its largest query.
end         the destructors of chdb crash the process while another thread is inside of the engine. So the end of the
            process waits for calls of daemon threads, and later calls of these threads fail.
"""

import atexit
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa

from telemetry.process.process_memory import trim

_ACTION_BYTES = 512
"""More than the size of ``struct sigaction`` on any platform."""


@contextmanager
def _unchanged_signals() -> Iterator[None]:
    """After the block, signals have the same handlers as before, and the same signals are blocked."""
    libc = ctypes.CDLL(None)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    actions = {number: ctypes.create_string_buffer(_ACTION_BYTES) for number in range(1, signal.SIGRTMIN)}
    kept = {number: action for number, action in actions.items() if not libc.sigaction(number, None, action)}
    try:
        yield
    finally:
        for number, action in kept.items():
            libc.sigaction(number, action, None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


with _unchanged_signals():
    from chdb import ChdbError, _chdb
    from chdb.session import Session as _Session

    _chdb.set_signal_handlers_enabled(0)  # type: ignore[attr-defined]

__all__ = ["ChdbError", "Session", "release_memory", "with_small_caches"]

MIB = 2**20
CACHE_BYTES = {
    "mark_cache_size": 64 * MIB,
    "primary_index_cache_size": 64 * MIB,
    "index_mark_cache_size": 16 * MIB,
    "query_condition_cache_size": 16 * MIB,
    "compiled_expression_cache_size": 32 * MIB,
}
"""Settings of the engine: sizes of its caches."""
_NOT_CACHED = "schema_inference_use_cache_for_file = 0"
"""Setting that turns off a cache of file columns: the next file descriptor of the same number has other columns."""


NOBODY = -1
"""No thread has this number."""
END_WAIT_S = 10.0
"""How long the end of the process waits for calls of the engine."""


class _Calls:
    """The calls of the engine in this process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._num_running = 0
        self._ending_thread: int | None = None
        self.sessions: set[Session] = set()
        """Open sessions. They are kept here, because their destructor would call the engine at the end of a thread."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count a call of the engine during the block.

        Raises:
            RuntimeError: the process ends.
        """
        with self._changed:
            if self.is_over:
                raise RuntimeError("the process ends")
            self._num_running += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_running -= 1
                self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether calls of this thread are refused."""
        return self._ending_thread not in (None, threading.get_ident())

    def end(self) -> None:
        """Refuse calls of other threads from now on, wait for those that run, and stop the engine."""
        if os.getpid() != self._pid:  # a fork: the threads of its parent do not exist here
            return
        with self._changed:
            self._ending_thread = threading.get_ident()
            is_idle = self._changed.wait_for(lambda: not self._num_running, END_WAIT_S)
        for session in list(self.sessions) if is_idle else ():
            session.close()
        self._ending_thread = NOBODY


_calls = _Calls()
atexit.register(_calls.end)  # after the end of all threads that are no daemons


class Session:
    """A connection to the engine, used by one thread at a time. The engine runs while one is open.

    Raises:
        RuntimeError: from every method, with the message of the engine.
    """

    def __init__(self, path: str) -> None:
        with _calls.running():
            self._session = _Session(path)
        _calls.sessions.add(self)

    def execute(self, sql: str) -> None:
        with _calls.running():
            self._session.query(sql)

    def query(self, sql: str) -> pa.Table:
        with _calls.running():
            answer = self._session.query(sql, "Arrow")
            if not len(answer):
                return pa.table({})
            # Not as "ArrowTable": chdb would load pandas, which takes a second and 60 MB.
            table = pa.ipc.open_file(answer.bytes()).read_all()
            return pa.Table.from_arrays(table.columns, names=table.column_names)

    def insert(self, table: str, rows: pa.Table, settings: str) -> None:
        """Add ``rows`` in one block, with these ``settings`` of the statement.

        chdb's own stream of inserts reports success if the disk is full when it commits.
        """
        columns = ", ".join(rows.column_names)
        with os.fdopen(os.memfd_create("rankscope-rows", os.MFD_CLOEXEC), "wb") as file:
            with pa.ipc.new_stream(file, rows.schema) as writer:
                writer.write_table(rows.combine_chunks())
            file.flush()
            self.execute(
                f"INSERT INTO {table} ({columns}) SELECT {columns} "
                f"FROM file('/proc/self/fd/{file.fileno()}', 'ArrowStream') SETTINGS {_NOT_CACHED}, {settings}"
            )

    def close(self) -> None:
        if _calls.is_over:  # the end of the process closes all sessions
            return
        with _calls.running():
            self._session.close()
        _calls.sessions.discard(self)


def with_small_caches(path: str) -> str:
    """The address with which the first session of a process starts the engine."""
    return f"{path}?{'&'.join(f'{name}={size}' for name, size in CACHE_BYTES.items())}"


def release_memory(session: Session) -> None:
    """Give freed pages back to the system."""
    with suppress(ChdbError):  # an engine that was built with another allocator
        session.execute("SYSTEM JEMALLOC PURGE")
    pa.default_memory_pool().release_unused()
    trim()
