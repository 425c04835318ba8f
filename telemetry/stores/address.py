"""What a store's address may look like, and its parts."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from telemetry.errors import UsageError

ADDRESSES = "embedded:DIR, embedded: (memory), or clickhouse://user:password@host:9000/database"
DEFAULT_DATABASE = "rankscope"
PORTS = {"clickhouse": 9000, "clickhouses": 9440}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server is and who asks."""

    host: str
    port: int = 9000
    user: str = "default"
    password: str = ""
    database: str = "rankscope"
    secure: bool = False

    def __str__(self) -> str:
        """Without the password."""
        return f"clickhouse://{self.host}:{self.port}/{self.database}"


def parse_address(url: str) -> ServerAddress:
    """The parts of ``clickhouse://user:password@host:port/database``; user, password and port may be left out.

    Raises:
        UsageError: no host, a port that is none, or a database name that needs quoting.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except ValueError as error:
        # urllib's own words repeat what stands where the port should be, which may be part of a password.
        raise UsageError("store address: no such host and port", hint=f"use {ADDRESSES}") from error
    database = parts.path.strip("/") or DEFAULT_DATABASE
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


def without_password(address: str) -> str:
    """An address of a store or a collector, fit to be printed, whatever its form."""
    if address.startswith("embedded:"):
        return address
    scheme, separator, rest = address.partition("://") if "://" in address else ("", "", address)
    user, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{place}" if at else address
