"""TLS on both sides of the collector: its certificate, and the certificates that its clients trust."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.files.input_file import open_input

CA_VARIABLE = "RANKSCOPE_CA_FILE"
LEAST_TLS = ssl.TLSVersion.TLSv1_2
"""Whatever a Python was built with: what is older can be read and changed on the way."""


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse what no server could start with.

    Raises:
        UsageError: a file is missing, none of its kind, or locked; or the key is another certificate's.
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
    """What a client checks a server's certificate against: the authorities in ``RANKSCOPE_CA_FILE``, and no others.

    None where that is not set: the usual ones.

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
            hint="name the certificate of the CA that signed the collector's certificate",
        ) from error
    context.minimum_version = LEAST_TLS
    return context


def _refuse_to_ask() -> str:
    raise UsageError("TLS: the key has a password", hint="use a key without a password, readable only by this user")


def _hint(what: str) -> str:
    return f"--tls-cert FILE and --tls-key FILE, both in PEM{', the key of that certificate' if what == 'key' else ''}"
