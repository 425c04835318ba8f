"""Secrets from the environment, or from a file that it names. Never from the command line, which all users can read.

RANKSCOPE_TOKEN         full access                              also as NAME_FILE: the path of a file
RANKSCOPE_WRITE_TOKEN   send batches and OpenTelemetry only      that holds only the secret
RANKSCOPE_READ_TOKEN    queries and the dashboard only
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.files.input_file import read_input

MAX_SECRET_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a server accepts, or a client may present. Empty: none of that kind. Never printed."""

    full: str = field(default="", repr=False)
    write: str = field(default="", repr=False)
    read: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.full or self.write or self.read)

    @property
    def to_write(self) -> str:
        """What to present with rows."""
        return self.full or self.write or self.read

    @property
    def to_read(self) -> str:
        """What to present with a question."""
        return self.full or self.read or self.write

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Tokens":
        """Raises:
        UsageError: as :func:`read_secret`.
        """
        names = {"full": "RANKSCOPE_TOKEN", "write": "RANKSCOPE_WRITE_TOKEN", "read": "RANKSCOPE_READ_TOKEN"}
        return cls(**{kind: read_secret(name, environment) for kind, name in names.items()})


def read_secret(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The secret in variable ``name``, or in the file that ``name_FILE`` names; empty where neither is set.

    Raises:
        UsageError: both are set, the file cannot be read or is empty, or the secret fits into no header.
    """
    value, path = environment.get(name, ""), environment.get(f"{name}_FILE", "")
    if value and path:
        raise UsageError(f"{name} and {name}_FILE are both set", hint="unset one of them")
    secret = _read(f"{name}_FILE", Path(path)) if path else value
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise UsageError(
            f"{name} contains spaces or characters beyond ASCII", hint="create one with `openssl rand -hex 32`"
        )
    return secret


def _read(name: str, path: Path) -> str:
    try:
        found = read_input(path, max_bytes=MAX_SECRET_BYTES).strip()
    except OSError as error:
        raise UsageError(f"{name}: cannot read {path}: {error.strerror}", hint="name a file with the secret") from error
    if not found:
        raise UsageError(f"{name}: {path} is empty", hint="the file must hold only the secret")
    return found.decode("latin-1")
