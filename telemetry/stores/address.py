"""The parts of a store's address, parsed and checked.

clickhouse[s]://user:password@host:port,host:port/database?cluster=NAME&ca_certs=FILE&verify=0
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from telemetry.credentials import read_secret
from telemetry.errors import UsageError

ADDRESSES = "embedded:DIR, embedded: (memory), or clickhouse://user:password@host:9000/database"
READABLE = "http://HOST:8719 for a collector, embedded:DIR, or clickhouse://user:password@host:9000/database"
"""Forms of addresses that can be queried."""
DEFAULT_DATABASE = "rankscope"
PORTS = {"clickhouse": 9000, "clickhouses": 9440}
PASSWORD = "RANKSCOPE_STORE_PASSWORD"
"""Environment variable with the password, for an address that has none. With ``_FILE`` appended: its file."""

_ADDRESS = re.compile(r"(?P<scheme>\w+)://(?P<place>[^/?#]*)(?:/(?P<database>[^?#]*))?(?:\?(?P<options>[^#]*))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTIONS = "cluster=NAME, ca_certs=FILE, verify=0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One server."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The servers of a database, and the user. All servers give the same data."""

    hosts: tuple[Host, ...]
    user: str = "default"
    password: str = field(default="", repr=False)
    database: str = DEFAULT_DATABASE
    secure: bool = False
    ca_certs: str | None = None
    """File with the trusted CA certificates. If None, the certificates that this machine trusts are used."""
    verify: bool = True
    cluster: str | None = None
    """Name of the servers' cluster. If None, each table is on one server."""

    def __str__(self) -> str:
        """The address without the password."""
        scheme = "clickhouses" if self.secure else "clickhouse"
        return f"{scheme}://{','.join(map(str, self.hosts))}/{self.database}"


def parse_address(url: str, environment: Mapping[str, str] = os.environ) -> ServerAddress:
    """The parts of an address; user, password and ports may be left out.

    Raises:
        UsageError: the host is missing, the port or a name is invalid, an option is unknown, or a file cannot be read.
    """
    parts = _ADDRESS.fullmatch(url)
    if parts is None or parts["scheme"] not in PORTS:
        raise UsageError("store address: unknown form", hint=f"use {ADDRESSES}")
    if "@" in f"{parts['database']}{parts['options']}":
        raise UsageError(
            "store address: there is an @ after the hosts", hint="write / ? # @ of a password as %2F %3F %23 %40"
        )
    credentials, _, hosts = parts["place"].rpartition("@")
    user, _, password = credentials.partition(":")
    options = _options(parts["options"] or "", secure=parts["scheme"] == "clickhouses")
    return ServerAddress(
        hosts=tuple(_host(host, PORTS[parts["scheme"]]) for host in hosts.split(",")),
        user=unquote(user) or "default",
        password=unquote(password) or read_secret(PASSWORD, environment),
        database=_valid_name("database", (parts["database"] or "").strip("/") or DEFAULT_DATABASE),
        secure=parts["scheme"] == "clickhouses",
        ca_certs=options.get("ca_certs"),
        verify=options.get("verify") != "0",
        cluster=_valid_name("cluster", options["cluster"]) if "cluster" in options else None,
    )


def _host(text: str, port: int) -> Host:
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port or port
    except ValueError as error:
        # urllib's message repeats the text in place of the port. It may be part of a password.
        raise UsageError("store address: invalid host or port", hint=f"use {ADDRESSES}") from error
    if not name:
        raise UsageError("store address: no host", hint=f"use {ADDRESSES}")
    return Host(name=name, port=port)


def _valid_name(what: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"store address: {what} {name!r} is not a valid name",
            hint="use letters, digits and underscores, and no digit at the start",
        )
    return name


def _options(text: str, *, secure: bool) -> dict[str, str]:
    options = dict(parse_qsl(text, keep_blank_values=True))
    if unknown := sorted(set(options) - {"cluster", "ca_certs", "verify"}):
        raise UsageError(f"store address: unknown option {unknown[0]!r}", hint=f"options are {_OPTIONS}")
    if not secure and options.keys() & {"ca_certs", "verify"}:
        raise UsageError("store address: ca_certs and verify need TLS", hint="use clickhouses://")
    if options.get("verify", "1") not in ("0", "1"):
        raise UsageError(
            f"store address: verify={options['verify']} is not valid",
            hint="use verify=0 to trust any certificate, or omit it",
        )
    if "ca_certs" in options and not Path(options["ca_certs"]).is_file():
        raise UsageError(
            f"store address: no file {options['ca_certs']!r}", hint="give ca_certs a file with certificates (PEM)"
        )
    return options


def without_password(address: str) -> str:
    """An address of a store or a collector without its password, so that it can be printed."""
    if address.startswith("embedded:"):
        return address
    scheme, separator, rest = address.partition("://") if "://" in address else ("", "", address)
    user, at, place = rest.rpartition("@")
    return f"{scheme}{separator}{user.partition(':')[0]}{at}{place}" if at else address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_collector(url: str) -> str:
    """``url``, if it can be the address of a collector.

    Raises:
        UsageError: it cannot.
    """
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    raise UsageError(
        f"{without_password(url)!r} is not the address of a collector", hint="use http://HOST:8719 or https://HOST:8719"
    )


def checked_readable(address: str) -> str:
    """``address``, if its form is that of a collector or of a store.

    Raises:
        UsageError: it is neither.
    """
    scheme, separator, _ = address.partition(":")
    if scheme in ("http", "https"):
        return checked_collector(address)
    if separator and scheme in ("embedded", *PORTS):
        return address
    raise UsageError(
        f"{without_password(address)!r} is not the address of a collector or a store", hint=f"use {READABLE}"
    )
