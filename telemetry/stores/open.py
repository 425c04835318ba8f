"""From a store's address to the store."""

from pathlib import Path
from typing import Protocol

from telemetry.errors import UsageError
from telemetry.stores.address import ADDRESSES, PORTS, parse_address, without_password
from telemetry.stores.interface import Store
from telemetry.stores.migrations import Database, check_current


class MigratingStore(Store, Protocol):
    """What every store of ours is to those that make and change its tables."""

    @property
    def database(self) -> Database:
        """As the scripts of the schema see it."""

    def migrate(self, *, retention_days: int | None = None) -> None:
        """As of every store; then keep raw rows that many days, 0 for ever; None: as it is."""

    def plan(self, *, retention_days: int | None = None) -> list[str]:
        """The SQL that :meth:`migrate` would run now. Nothing is changed."""


def open_store(url: str, *, for_reading: bool = False, retention_days: int | None = None) -> Store:
    """The store at ``url``, its tables made or upgraded.

    Args:
        url: ``embedded:DIR``, ``embedded:`` (memory), ``clickhouse://user:password@host:9000/database``, or
            ``clickhouses://`` for TLS; options in ``docs/guides/store.md``.
        for_reading: of a server's database nothing is made or changed, and a user who may only read is enough.
        retention_days: keep raw rows that long, 0 for ever; None: as it is.

    Raises:
        UsageError: an address of no known form, or a database of another version.
        UnreachableError: the server does not answer, or another process holds the folder.
    """
    store = find_store(url, for_reading=for_reading)
    try:
        if for_reading and not url.startswith("embedded:"):
            check_current(store.database)
            return store
        store.migrate(retention_days=retention_days)
    except BaseException:
        store.close()
        raise
    return store


def find_store(url: str, *, for_reading: bool = False) -> MigratingStore:
    """The store at ``url`` as it is.

    Raises:
        UsageError, UnreachableError: as of :func:`open_store`.
    """
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "embedded":
        from telemetry.stores.embedded import EmbeddedStore  # noqa: PLC0415 - an engine of half a gigabyte

        return EmbeddedStore(Path(rest) if rest else None)
    if separator and scheme in PORTS:
        from telemetry.stores.clickhouse import ClickHouseStore  # noqa: PLC0415 - the driver is an optional extra

        return ClickHouseStore(parse_address(url), for_reading=for_reading)
    raise UsageError(f"{without_password(url)!r} is not the address of a store", hint=f"use {ADDRESSES}")
