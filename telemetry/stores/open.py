"""From a store's address to the store."""

from pathlib import Path

from telemetry.errors import UsageError
from telemetry.stores.address import ADDRESSES, PORTS, parse_address, without_password
from telemetry.stores.interface import Store


def open_store(url: str) -> Store:
    """The store at ``url``, its tables made or upgraded.

    ``embedded:DIR``, ``embedded:`` (memory), ``clickhouse://user:password@host:9000/database``, or
    ``clickhouses://`` for TLS.

    Raises:
        UsageError: an address of no known form.
        UnreachableError: the server does not answer, or another process holds the folder.
    """
    scheme, separator, rest = url.partition(":")
    if separator and scheme == "embedded":
        from telemetry.stores.embedded import EmbeddedStore  # noqa: PLC0415 - an engine of half a gigabyte

        store: Store = EmbeddedStore(Path(rest) if rest else None)
    elif separator and scheme in PORTS:
        from telemetry.stores.clickhouse import ClickHouseStore  # noqa: PLC0415 - the driver is an optional extra

        store = ClickHouseStore(parse_address(url))
    else:
        raise UsageError(f"{without_password(url)!r} is no address of a store", hint=f"use {ADDRESSES}")
    store.migrate()
    return store
