"""Settings of a server, from arguments or the environment (``RANKSCOPE_TOKEN``, ``RANKSCOPE_QUEUE_BYTES``, ...).

The module also rejects requests that pages of other sites send from a user's browser. Such a page can make the browser
call loopback, or any server for which the browser has a password. Two things identify it: the host name in the request
(its own name, made to resolve to 127.0.0.1), and the headers in which the browser reports the origin:

    evil.example -> resolves to 127.0.0.1 -> Host: evil.example:8719       421 if no token protects the server
    evil.example -> POST http://127.0.0.1:8719/  Sec-Fetch-Site: cross-site  403
    evil.example -> WebSocket ws://127.0.0.1:8719/  Origin: not Host         403
"""

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from telemetry.collector.answers import Refused, ignore, refuse, turn_away
from telemetry.credentials import Tokens, check_pair
from telemetry.errors import UsageError
from telemetry.settings import DEFAULT_PORT

READ_ONLY = ("GET", "HEAD", "OPTIONS")
FOREIGN = ("cross-site", "same-site")
"""``same-site`` is another port or name of the same domain: not this server."""


class OriginGate:
    """ASGI middleware: turns away what a foreign page sends.

    Args:
        hosts: names by which the server may be called, beside those of loopback. None: by any.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] | None, refused: Refused = ignore) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_ours(headers.getlist("host")):
            hint = "use a loopback address, or add the name to RANKSCOPE_ALLOWED_HOSTS"
            status, error = 421, "this server does not accept that host name"
        elif _is_foreign(scope, headers):
            status, error, hint = 403, "pages of other sites may not request this", "use the dashboard's own address"
        else:
            await self._app(scope, receive, send)
            return
        self._refused(status)
        await turn_away(refuse(status, error, hint), scope, receive, send)

    def _is_ours(self, hosts: list[str]) -> bool:
        if self._hosts is None:
            return True
        name = without_port(hosts[0]) if len(hosts) == 1 else ""
        return is_loopback(name) or name.endswith(".localhost") or name in self._hosts


def _is_foreign(scope: Scope, headers: Headers) -> bool:
    """Reading is left to the browser, which shows a foreign page no answer; but what a WebSocket tells, it shows."""
    if scope["type"] == "websocket":
        return not _is_own(headers.get("origin", ""), headers.get("host", ""))
    return scope["method"] not in READ_ONLY and headers.get("sec-fetch-site", "") in FOREIGN


def _is_own(origin: str, host: str) -> bool:
    """Whether a page of ``origin``, which every browser tells, is one of the server that was called ``host``."""
    _, _, authority = origin.partition("://")
    return bool(authority) and authority.lower() == host.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``, an address or a name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def without_port(host: str) -> str:
    """The name in a Host header: ``example:8719`` -> ``example``, ``[::1]:8719`` -> ``::1``."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


Live = Literal["interval", "websocket"]


class ServerSettings(BaseSettings):
    """Where a server listens, whom it lets in, and how much it takes. Made by :meth:`checked`.

    Any address but loopback needs a token. What each may do: ``telemetry/collector/guard.py``.
    """

    model_config = SettingsConfigDict(env_prefix="RANKSCOPE_", frozen=True, extra="ignore", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    token: SecretStr | None = None
    """Sent by agents and users: ``Authorization: Bearer``, or as the password in a browser."""
    write_token: SecretStr | None = None
    read_token: SecretStr | None = None
    tls_cert: Path | None = None
    """Certificate and what leads to its authority, in PEM. With it and its key: https, and nothing else."""
    tls_key: Path | None = None
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names it may be called by, beside those of loopback; divided by commas."""
    max_body_bytes: int = Field(default=64 * 2**20, gt=0)
    max_bodies_bytes: int = Field(default=512 * 2**20, gt=0)
    """Bodies in memory at once, those that wait to be stored included."""
    body_seconds: float = Field(default=60.0, gt=0)
    """From the head of a request to the end of its body."""
    requests_per_second: float = Field(default=1000.0, ge=0)
    """Of one address; 0: any number."""
    query_seconds: float = Field(default=60.0, gt=0)
    """What one question may take of the store."""
    live: Live = "interval"
    """How open pages learn of new data: by polling, or by WebSocket."""
    max_answer_bytes: int = Field(default=512 * 2**20, gt=0)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Settings from arguments, then the environment and the files it names.

        Raises:
            UsageError: a value out of range, an open address without a token, or a secret or a file that is not right.
        """
        try:
            settings = cls(**{**_secrets(), **values})
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "server"
            text = first["msg"].removeprefix("Value error, ")
            raise UsageError(
                f"{name}: {text}", hint="see `rankscope collect --help` and RANKSCOPE_* in the environment"
            ) from error
        if settings.tls_cert and settings.tls_key:
            check_pair(settings.tls_cert, settings.tls_key)
        return settings

    @property
    def tokens(self) -> Tokens:
        """Those that open it; none: it is open to this machine."""
        return Tokens(full=_secret(self.token), write=_secret(self.write_token), read=_secret(self.read_token))

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"

    @model_validator(mode="before")
    @classmethod
    def _divide_hosts(cls, values: Any) -> Any:
        hosts = values.get("allowed_hosts") if isinstance(values, dict) else None
        if isinstance(hosts, str):
            return {**values, "allowed_hosts": tuple(name.strip() for name in hosts.split(",") if name.strip())}
        return values

    @model_validator(mode="after")
    def _closed_by_default(self) -> Self:
        if not is_loopback(self.host) and not self.tokens:
            raise ValueError(
                f"listening on {self.host} needs a token: set RANKSCOPE_TOKEN, or RANKSCOPE_WRITE_TOKEN and "
                "RANKSCOPE_READ_TOKEN, each to its own line of `openssl rand -hex 32`"
            )
        given = [token for token in (self.tokens.full, self.tokens.write, self.tokens.read) if token]
        if len(set(given)) < len(given):
            raise ValueError("two of the tokens are the same: use a different token for each purpose")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("give both the certificate and its key (--tls-cert, --tls-key)")
        return self


class CollectorSettings(ServerSettings):
    """A server with a store behind it."""

    store: str = "embedded:rankscope-store"
    queue_bytes: int = Field(default=256 * 2**20, gt=0)
    """Batches that may wait; beyond it agents get 503 and retry."""
    linger_s: float = Field(default=0.1, ge=0, le=10)
    """How long the first batch waits for others to share its insert."""
    retention_days: int | None = Field(default=None, ge=0, le=36_500)
    """How long raw rows are kept: ``telemetry/stores/retention.py``. 0: for ever; None: as the store has it."""
    clocks_s: float = Field(default=30.0, ge=0, le=3600)
    """Seconds between two alignments of hosts' clocks; 0: none."""


def _secrets() -> dict[str, SecretStr]:
    tokens = Tokens.from_environment()
    given = {"token": tokens.full, "write_token": tokens.write, "read_token": tokens.read}
    return {name: SecretStr(value) for name, value in given.items() if value}


def _secret(token: SecretStr | None) -> str:
    return token.get_secret_value() if token else ""
