"""What a collector can be told, by argument or by environment (``RANKSCOPE_TOKEN``, ``RANKSCOPE_QUEUE_BYTES``, ...)."""

from ipaddress import ip_address
from typing import Any, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from telemetry.errors import UsageError
from telemetry.readers import DEFAULT_PORT


class CollectorSettings(BaseSettings):
    """Any address but loopback needs a token. Made by :meth:`checked`."""

    model_config = SettingsConfigDict(env_prefix="RANKSCOPE_", frozen=True, extra="ignore")

    store: str = "embedded:rankscope-store"
    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    token: SecretStr | None = None
    """Agents and people present it: ``Authorization: Bearer``, or as the password a browser asks for."""
    max_body_bytes: int = Field(default=64 * 2**20, gt=0)
    queue_bytes: int = Field(default=256 * 2**20, gt=0)
    """Batches that may wait; beyond it agents are told to come back later."""
    linger_s: float = Field(default=0.1, ge=0, le=10)
    """How long the first batch waits for others to share its insert."""

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Settings from arguments, then the environment.

        Raises:
            UsageError: a value out of range, or an open address without a token.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "collector"
            text = first["msg"].removeprefix("Value error, ")
            raise UsageError(
                f"{name}: {text}", hint="see `rankscope collect --help` and RANKSCOPE_* in the environment"
            ) from error

    @model_validator(mode="after")
    def _closed_by_default(self) -> Self:
        if not is_loopback(self.host) and not (self.token and self.token.get_secret_value()):
            raise ValueError(f"listening on {self.host} needs a token (RANKSCOPE_TOKEN)")
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
