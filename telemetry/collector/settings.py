"""What a server can be told, by argument or by environment (``RANKSCOPE_TOKEN``, ``RANKSCOPE_QUEUE_BYTES``, ...)."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from telemetry.collector.origins import is_loopback
from telemetry.credentials import Tokens
from telemetry.errors import UsageError
from telemetry.settings import DEFAULT_PORT
from telemetry.wire.tls import check_pair

Live = Literal["interval", "websocket"]


class ServerSettings(BaseSettings):
    """Where a server listens, whom it lets in, and how much it takes. Made by :meth:`checked`.

    Any address but loopback needs a token. What each may do: ``telemetry/collector/access.py``.
    """

    model_config = SettingsConfigDict(env_prefix="RANKSCOPE_", frozen=True, extra="ignore", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    token: SecretStr | None = None
    """Agents and people present it: ``Authorization: Bearer``, or as the password a browser asks for."""
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
    """How open pages hear that something has arrived: they ask every so often, or are told."""
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
        return Tokens(full=_told(self.token), write=_told(self.write_token), read=_told(self.read_token))

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
        told = [token for token in (self.tokens.full, self.tokens.write, self.tokens.read) if token]
        if len(set(told)) < len(told):
            raise ValueError("two of the tokens are the same: each is for something else")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("a certificate and its key go together (--tls-cert, --tls-key)")
        return self


class CollectorSettings(ServerSettings):
    """A server with a store behind it."""

    store: str = "embedded:rankscope-store"
    queue_bytes: int = Field(default=256 * 2**20, gt=0)
    """Batches that may wait; beyond it agents are told to come back later."""
    linger_s: float = Field(default=0.1, ge=0, le=10)
    """How long the first batch waits for others to share its insert."""
    retention_days: int | None = Field(default=None, ge=0, le=36_500)
    """How long raw rows are kept: ``telemetry/stores/retention.py``. 0: for ever; None: as the store has it."""
    clocks_s: float = Field(default=30.0, ge=0, le=3600)
    """Between two looks at how hosts' clocks lie apart; 0: none."""


def _secrets() -> dict[str, SecretStr]:
    tokens = Tokens.from_environment()
    told = {"token": tokens.full, "write_token": tokens.write, "read_token": tokens.read}
    return {name: SecretStr(value) for name, value in told.items() if value}


def _told(token: SecretStr | None) -> str:
    return token.get_secret_value() if token else ""
