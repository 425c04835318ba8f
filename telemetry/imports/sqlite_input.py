"""Reads plain tables of an SQLite file from an untrusted source.

Such a file can contain views, triggers, virtual tables and generated columns, which run SQL or code when they are read.
None of it runs here:

    only plain tables          views, virtual tables and tables with generated columns are refused
    an authorizer              only SELECT on the named columns compiles; no function, pragma, or ATTACH
    read-only, immutable       nothing is written, no journal is replayed
    a limit on work            proportional to the size of the file; a damaged tree that loops is stopped
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import open_input

MAX_TEXT_BYTES = 2**16
STEPS_A_CALL = 100_000
STEPS_A_BYTE = 64
"""Allowed instructions of SQLite's machine for each byte of the file. A row has tens of bytes, and takes some
instructions for each column."""
FREE_STEPS = 5_000_000
_GENERATED = (2, 3)
"""Values of ``hidden`` in ``PRAGMA table_xinfo`` for generated columns."""


class Tables:
    """The plain tables of an open file. For one thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._columns = dict(self._known_columns())
        connection.set_authorizer(_only_select)

    def _known_columns(self) -> Iterator[tuple[str, frozenset[str]]]:
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND typeof(sql) = 'text' LIMIT 10000"
        for name, sql in self._connection.execute(query).fetchall():
            if not isinstance(name, str) or sql.lstrip()[:20].upper().startswith("CREATE VIRTUAL"):
                continue
            columns = self._connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
            if not any(column[6] in _GENERATED for column in columns):
                yield name, frozenset(str(column[1]) for column in columns)

    def columns_of(self, table: str) -> frozenset[str]:
        """Names of the columns. Empty if the file has no such plain table."""
        return self._columns.get(table, frozenset())

    def rows(self, table: str, columns: Sequence[str], *, max_rows: int) -> list[tuple[Any, ...]]:
        """Some columns of a table: one tuple for each row. A column that the table lacks is None.

        Raises:
            UnreadableError: more than ``max_rows``, or the file is damaged.
        """
        known = self.columns_of(table)
        if not known:
            return []
        chosen = ", ".join(_quoted(name) if name in known else "NULL" for name in columns)
        found = self._connection.execute(f"SELECT {chosen} FROM {_quoted(table)} LIMIT {max_rows + 1}").fetchall()
        if len(found) > max_rows:
            raise UnreadableError(
                f"{self._path}: {table} has more than {max_rows:,} rows", hint="record fewer steps into one file"
            )
        return found


@contextmanager
def open_tables(path: Path, hint: str) -> Iterator[Tables]:
    """The tables of the SQLite file at ``path``.

    Raises:
        UsageError: it cannot be opened.
        UnreadableError: it is not SQLite, is damaged, or takes too much work.
    """
    try:
        file = open_input(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint=hint) from error
    with file:
        size_bytes = os.fstat(file.fileno()).st_size
        # The descriptor names the file that was checked, whatever happens to its path meanwhile.
        connection = sqlite3.connect(f"file:/proc/self/fd/{file.fileno()}?mode=ro&immutable=1", uri=True)
        try:
            _limit(connection, size_bytes)
            yield Tables(path, connection)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise UnreadableError(f"{path} is not a complete SQLite file: {str(error)[:200]}", hint=hint) from error
        finally:
            connection.close()


def _limit(connection: sqlite3.Connection, size_bytes: int) -> None:
    connection.text_factory = lambda content: content.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_TEXT_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    most_calls = (FREE_STEPS + STEPS_A_BYTE * size_bytes) // STEPS_A_CALL
    calls = iter(range(most_calls))
    connection.set_progress_handler(lambda: next(calls, None) is None, STEPS_A_CALL)


def _only_select(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
