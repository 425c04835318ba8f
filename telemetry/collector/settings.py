"""Settings of a server, from arguments or the environment (``RANKSCOPE_TOKEN``, ``RANKSCOPE_QUEUE_BYTES``, ...)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from telemetry.credentials import Tokens, check_pair
from telemetry.errors import UsageError
from telemetry.plain_errors import in_plain_words
from telemetry.settings import DEFAULT_PORT
from telemetry.stores.address import is_loopback
from telemetry.stores.retention import Limits

Live = Literal["interval", "websocket"]


class ServerSettings(BaseSettings):
    """Address, access and limits of a server. Use :meth:`checked`.

    Any address but loopback needs a token. For the rights of each token, see ``telemetry/collector/guard.py``.
    """

    model_config = SettingsConfigDict(env_prefix="RANKSCOPE_", frozen=True, extra="ignore", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    token: SecretStr | None = None
    """Sent by agents and users: ``Authorization: Bearer``, or as the password in a browser."""
    write_token: SecretStr | None = None
    read_token: SecretStr | None = None
    tls_cert: Path | None = None
    """Certificate with its chain, in PEM. With a certificate and its key, the server accepts https only."""
    tls_key: Path | None = None
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Accepted host names, besides those of loopback, separated by commas."""
    max_body_bytes: int = Field(default=64 * 2**20, gt=0)
    max_bodies_bytes: int = Field(default=512 * 2**20, gt=0)
    """All bodies in memory, including those that wait to be stored."""
    body_seconds: float = Field(default=60.0, gt=0)
    """Longest time from the head of a request to the end of its body."""
    requests_per_second: float = Field(default=1000.0, ge=0)
    """Limit for one address. If 0, there is no limit."""
    query_seconds: float = Field(default=60.0, gt=0)
    """Time limit of a query in the store."""
    live: Live = "interval"
    """How open pages get new data: by polling (``interval``), or by WebSocket."""
    max_answer_bytes: int = Field(default=512 * 2**20, gt=0)

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Settings from arguments, then the environment and the files it names.

        Raises:
            UsageError: a value is out of range, an address other than loopback has no token, or a secret or a file is
                invalid.
        """
        try:
            tokens = Tokens.from_environment()
            secrets = {"token": tokens.full, "write_token": tokens.write, "read_token": tokens.read}
            settings = cls(**{**{name: SecretStr(value) for name, value in secrets.items() if value}, **values})
        except ValidationError as error:
            first = error.errors()[0]
            hint = "see docs/guides/settings.md and docs/guides/security.md"
            raise UsageError(f"{_origin(first['loc'], values)}: {in_plain_words(first['msg'])}", hint=hint) from error
        if settings.tls_cert and settings.tls_key:
            check_pair(settings.tls_cert, settings.tls_key)
        return settings

    @classmethod
    def of_job(cls, *, host: str, token: str, **limits: float) -> Self:
        """Settings of a server that belongs to one job. ``token`` allows everything. Variables of the environment
        configure collectors, and have no effect here."""
        usual = {name: field.get_default() for name, field in cls.model_fields.items()}
        return cls(**{**usual, "host": host, "token": SecretStr(token), **limits})

    @property
    def tokens(self) -> Tokens:
        """The accepted tokens. If there are none, all users of this machine have access."""
        given = {"full": self.token, "write": self.write_token, "read": self.read_token}
        return Tokens(**{kind: token.get_secret_value() for kind, token in given.items() if token})

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"

    @model_validator(mode="before")
    @classmethod
    def _split_hosts(cls, values: Any) -> Any:
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
        for name in self.allowed_hosts:
            if "/" in name or name.count(":") == 1:
                raise ValueError(f"{name!r} in RANKSCOPE_ALLOWED_HOSTS is not a host name: omit scheme, port and path")
        given = [token for token in (self.tokens.full, self.tokens.write, self.tokens.read) if token]
        if len(set(given)) < len(given):
            raise ValueError("two of the tokens are the same: use a different token for each purpose")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("give both the certificate and its key (--tls-cert, --tls-key)")
        return self


class CollectorSettings(ServerSettings):
    """Settings of a server that has a store."""

    store: str = "embedded:rankscope-store"
    queue_bytes: int = Field(default=256 * 2**20, gt=0)
    """Largest size of all waiting batches. If it is exceeded, agents get 429 and retry."""
    linger_s: float = Field(default=0.1, ge=0, le=10)
    """How long the first batch waits for other batches to share its insert."""
    retention_days: int | None = Field(default=None, ge=0, le=36_500)
    """Days to keep raw rows (``telemetry/stores/retention.py``). 0 keeps them forever, None as the store does now."""
    findings_days: int | None = Field(default=None, ge=0, le=36_500)
    """Days to keep the findings log. 0 keeps it forever, None as the store does now: a year in a new store."""
    clocks_s: float = Field(default=30.0, ge=0, le=3600)
    """Seconds between two alignments of hosts' clocks. If 0, clocks are not aligned."""

    @property
    def limits(self) -> Limits:
        """How long rows are kept."""
        return Limits(raw_days=self.retention_days, findings_days=self.findings_days)


def _origin(place: Sequence[str | int], arguments: Mapping[str, object]) -> str:
    """The option or the variable of a wrong value; ``server`` if several values do not fit together."""
    if not place:
        return "server"
    name = str(place[0])
    return f"--{name.replace('_', '-')}" if name in arguments else f"RANKSCOPE_{name.upper()}"
