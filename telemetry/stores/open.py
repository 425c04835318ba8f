"""Opens the store at an address."""

from pathlib import Path
from typing import Protocol

from telemetry.errors import UsageError
from telemetry.stores.address import ADDRESSES, PORTS, parse_address, without_password
from telemetry.stores.interface import Store
from telemetry.stores.migrations import Database, check_current
from telemetry.stores.retention import NO_CHANGE, Limits


class MigratingStore(Store, Protocol):
    """A store with what is needed to create and change its tables."""

    @property
    def database(self) -> Database:
        """The database, for the scripts of the schema."""

    def migrate(self, *, limits: Limits = NO_CHANGE) -> None:
        """Create or upgrade the tables, then set how long rows are kept."""

    def plan(self, *, limits: Limits = NO_CHANGE) -> list[str]:
        """The SQL that :meth:`migrate` would run now. Nothing is changed."""


def open_store(url: str, *, for_reading: bool = False, limits: Limits = NO_CHANGE) -> Store:
    """Open the store at ``url``, and create or upgrade its tables.

    Args:
        url: ``embedded:DIR``, ``embedded:`` (memory), ``clickhouse://user:password@host:9000/database``, or
            ``clickhouses://`` for TLS; options in ``docs/guides/store.md``.
        for_reading: do not change the database of a server. A read-only user is sufficient.
        limits: how long to keep rows.

    Raises:
        UsageError: the form of the address is unknown, or the database has another version.
        UnreachableError: the server does not answer, or another process holds the folder.
    """
    store = find_store(url, for_reading=for_reading)
    try:
        if for_reading and not url.startswith("embedded:"):
            check_current(store.database)
            return store
        store.migrate(limits=limits)
    except BaseException:
        store.close()
        raise
    return store


def find_store(url: str, *, for_reading: bool = False) -> MigratingStore:
    """Open the store at ``url`` without a change of its tables.

    Raises:
        UsageError, UnreachableError: as :func:`open_store`.
    """
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "embedded":
        from telemetry.stores.embedded import EmbeddedStore  # noqa: PLC0415 - an engine of half a gigabyte

        return EmbeddedStore(Path(rest) if rest else None)
    if separator and scheme in PORTS:
        from telemetry.stores.clickhouse import ClickHouseStore  # noqa: PLC0415 - the driver is an optional extra

        return ClickHouseStore(parse_address(url), for_reading=for_reading)
    raise UsageError(f"{without_password(url)!r} is not an address of a store", hint=f"use {ADDRESSES}")
