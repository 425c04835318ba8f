"""Secrets and TLS certificates of the collector and its clients.

RANKSCOPE_TOKEN         full access                              also as NAME_FILE: the path of a file
RANKSCOPE_WRITE_TOKEN   send batches and OpenTelemetry only      that holds only the secret
RANKSCOPE_READ_TOKEN    queries and the dashboard only
RANKSCOPE_CA_FILE       the certificates that clients trust

Secrets are never read from the command line, because all users can read it.
"""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.files.access import open_input, read_input

MAX_SECRET_BYTES = 4096
CA_VARIABLE = "RANKSCOPE_CA_FILE"
LEAST_TLS = ssl.TLSVersion.TLSv1_2
"""The oldest version of TLS that is accepted. Older versions do not protect against reading and changing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens that a server accepts, or a client presents. A text is empty if there is no such token. Never
    printed."""

    full: str = field(default="", repr=False)
    write: str = field(default="", repr=False)
    read: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.full or self.write or self.read)

    @property
    def to_write(self) -> str:
        """The token to send with rows."""
        return self.full or self.write or self.read

    @property
    def to_read(self) -> str:
        """The token to send with a query."""
        return self.full or self.read or self.write

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Tokens":
        """The tokens in the environment.

        Raises:
            UsageError: as :func:`read_secret`.
        """
        names = {"full": "RANKSCOPE_TOKEN", "write": "RANKSCOPE_WRITE_TOKEN", "read": "RANKSCOPE_READ_TOKEN"}
        return cls(**{kind: read_secret(name, environment) for kind, name in names.items()})


def read_secret(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The secret in variable ``name``, or in the file that ``name_FILE`` names; empty if neither is set.

    Raises:
        UsageError: both are set, the file cannot be read or is empty, or the secret cannot be sent in a header.
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
        raise UsageError(f"{name}: cannot read {path}: {error.strerror}", hint="give a file with the secret") from error
    if not found:
        raise UsageError(f"{name}: {path} is empty", hint="the file must hold only the secret")
    return found.decode("latin-1")


def check_pair(certificate: Path, key: Path) -> None:
    """Check that a server can start with this certificate and key.

    Raises:
        UsageError: a file cannot be read, is not PEM, or has a password; or the key belongs to another certificate.
    """
    for path, what in ((certificate, "certificate"), (key, "key")):
        try:
            open_input(path).close()
        except OSError as error:
            raise UsageError(f"TLS: cannot read the {what} {path}: {error.strerror}", hint=_hint(what)) from error
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=_refuse_to_ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"TLS: {key} is not the key of {certificate}", hint=_hint("key")) from error
        raise UsageError(
            f"TLS: {certificate} and {key} are not a certificate and its key in PEM", hint=_hint("")
        ) from error


def trusted(environment: Mapping[str, str] = os.environ) -> ssl.SSLContext | None:
    """The certificates in ``RANKSCOPE_CA_FILE``, with which a client checks a server. None if it is not set: the
    client then uses the certificates of the system.

    Raises:
        UsageError: the file cannot be read, or holds no certificate.
    """
    path = environment.get(CA_VARIABLE, "")
    if not path:
        return None
    try:
        open_input(Path(path)).close()
        context = ssl.create_default_context(cafile=path)
    except OSError as error:
        what = "it has no certificate in PEM" if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(
            f"{CA_VARIABLE}: {path}: {what}",
            hint="give the certificate of the CA that signed the collector's certificate",
        ) from error
    context.minimum_version = LEAST_TLS
    return context


def _refuse_to_ask() -> str:
    raise UsageError("TLS: the key has a password", hint="use a key without a password, readable only by this user")


def _hint(what: str) -> str:
    return f"--tls-cert FILE and --tls-key FILE, both in PEM{', the key of that certificate' if what == 'key' else ''}"
