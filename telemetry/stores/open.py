"""From a store's address to the store."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from telemetry.errors import UsageError
from telemetry.stores.clickhouse import ClickHouseStore, ServerAddress
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store

ADDRESSES = "embedded:DIR, embedded: (memory), or clickhouse://user:password@host:9000/database"
DEFAULT_DATABASE = "rankscope"
PORTS = {"clickhouse": 9000, "clickhouses": 9440}


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
        store: Store = EmbeddedStore(Path(rest) if rest else None)
    elif separator and scheme in PORTS:
        store = ClickHouseStore(parse_address(url))
    else:
        raise UsageError(f"{url!r} is no address of a store", hint=f"use {ADDRESSES}")
    store.migrate()
    return store


def parse_address(url: str) -> ServerAddress:
    """The parts of ``clickhouse://user:password@host:port/database``; user, password and port may be left out.

    Raises:
        UsageError: no host, a port that is none, or a database name that needs quoting.
    """
    parts = urlsplit(url)
    database = parts.path.strip("/") or DEFAULT_DATABASE
    try:
        port = parts.port or PORTS[parts.scheme]
    except ValueError as error:
        raise UsageError(f"store address: {error}", hint=f"use {ADDRESSES}") from error
    if not parts.hostname or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        what = "no host" if not parts.hostname else f"database {database!r} is not a plain name"
        raise UsageError(f"store address: {what}", hint=f"use {ADDRESSES}")
    return ServerAddress(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        database=database,
        secure=parts.scheme == "clickhouses",
    )
