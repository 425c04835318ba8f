"""SQL of a person, run with the rights and limits of a database user that cannot write.

The server enforces both, so the user is checked before each query:

    readonly             1: no write, no change of settings, no table function that reads files or other servers
    max_execution_time   1 to 300 s
    max_result_bytes     1 to 64 MiB: the answer is read into memory

The embedded engine is not offered. With readonly = 1 it still reads files (function ``file``), writes files (``INTO
OUTFILE``) and ends queries of others (``KILL QUERY``).
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from clickhouse_driver.errors import ServerException, UnknownTypeError

from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.address import parse_address
from telemetry.stores.driver import Connection, make_connection
from telemetry.stores.servers import FAULTS, Servers, hint, server_message

MAX_TEXT = 20_000
"""Characters of a query."""
MAX_ROWS, MAX_CELL, MAX_CHARACTERS = 1_000, 1_000, 2_000_000
"""Limits: rows of an answer, characters of a value, characters of an answer. Longer answers and values are cut."""
_LIMITS = {"max_execution_time": 300, "max_result_bytes": 64 * 2**20}
"""Setting -> its largest value."""
_WANTED = "readonly = 1, max_execution_time = 60, max_result_bytes = 67108864"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAnswer:
    """The first rows of an answer, as text."""

    columns: tuple[tuple[str, str], ...]
    """Names and types."""
    rows: tuple[tuple[str | None, ...], ...]
    """Values. None stands for NULL."""
    is_cut: bool
    """Whether there are more rows."""


class LimitedSql:
    """Runs SQL on a server. Connects for each query. Every method may block and may be called from any thread.

    Args:
        url: the address of a ClickHouse server with the user.

    Raises:
        UsageError: the address has another form.
    """

    def __init__(self, url: str) -> None:
        if url.startswith("embedded:"):
            raise UsageError(
                "SQL needs a ClickHouse server: the embedded engine cannot limit time and memory of a query",
                hint="use clickhouse://reader:password@host:9000/database",
            )
        self._address = parse_address(url)
        self._servers = Servers(self._address, make=partial(make_connection, use_numpy=False))

    def run(self, text: str) -> SqlAnswer:
        """The answer to one query.

        Raises:
            UsageError: the server refuses the query, it is too long, or the user is not limited.
            UnreachableError: the server does not answer.
        """
        if not text.strip() or len(text) > MAX_TEXT:
            raise UsageError(f"the query has {len(text):,} characters", hint=f"write 1 to {MAX_TEXT:,} characters")
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError("the query has half of a surrogate pair", hint="write valid Unicode")
        connection = self._servers.connect(self._check)
        try:
            return _answer(connection, text)
        except (ServerException, UnknownTypeError) as error:
            raise UsageError(server_message(error), hint="change the query") from error
        except FAULTS as error:
            raise UnreachableError(f"{self._address}: {server_message(error)}", hint=hint(error)) from error
        finally:
            with suppress(*FAULTS):  # a query whose rows are not all read ends with its connection
                connection.disconnect()

    def _check(self, connection: Connection) -> None:
        """Refuse a user that the server does not limit."""
        names = ("readonly", *_LIMITS)
        found = connection.execute(f"SELECT name, toUInt64OrZero(value) FROM system.settings WHERE name IN {names}")
        values = {str(name): int(value) for name, value in found}
        problems = [
            f"{name} is {values.get(name, 0)}, not 1 to {most}"
            for name, most in _LIMITS.items()
            if not 1 <= values.get(name, 0) <= most
        ]
        if values.get("readonly") != 1:
            problems.insert(0, "the user may write or change settings")
        if problems:
            connection.disconnect()
            raise UsageError(f"{self._address}: {', '.join(problems)}", hint=f"use a user with the settings {_WANTED}")


def _answer(connection: Connection, text: str) -> SqlAnswer:
    found = connection.execute_iter(text, with_column_types=True)
    columns = next(found, ())
    rows: list[tuple[str | None, ...]] = []
    size = 0
    for row in found:
        cells = tuple(map(_cell, row))
        size += sum(len(cell or "") for cell in cells)
        if len(rows) == MAX_ROWS or size > MAX_CHARACTERS:
            return SqlAnswer(columns=_named(columns), rows=tuple(rows), is_cut=True)
        rows.append(cells)
    return SqlAnswer(columns=_named(columns), rows=tuple(rows), is_cut=False)


def _named(columns: Iterable[tuple[Any, Any]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(kind)) for name, kind in columns)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}\N{HORIZONTAL ELLIPSIS}"
