"""Certificates for tests, made by openssl: an authority, and servers that it vouches for."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.parts import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


def make_authority(folder: Path, name: str = "authority") -> Pair:
    """Whoever trusts its certificate trusts what it signs."""
    pair = Pair(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    _openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-keyout", pair.key, "-out", pair.certificate,
    )  # fmt: skip
    return pair


def make_server(folder: Path, authority: Pair, name: str = "server", *, names: str = "IP:127.0.0.1") -> Pair:
    """For a server that is called by ``names``."""
    pair = Pair(certificate=folder / f"{name}.pem", key=folder / f"{name}.key")
    asked, said = folder / f"{name}.csr", folder / f"{name}.ext"
    said.write_text(f"subjectAltName={names}\n")
    _openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-subj", f"/CN={name}", "-keyout", pair.key, "-out", asked,
    )  # fmt: skip
    _openssl(
        "x509", "-req", "-in", asked, "-CA", authority.certificate, "-CAkey", authority.key, "-CAcreateserial",
        "-days", "2", "-extfile", said, "-out", pair.certificate,
    )  # fmt: skip
    return pair


def lock(pair: Pair, password: str) -> Path:
    """The key under a password."""
    locked = pair.key.with_suffix(".locked")
    _openssl("ec", "-in", pair.key, "-aes256", "-passout", f"pass:{password}", "-out", locked)
    return locked


def _openssl(*arguments: object) -> None:
    done = subprocess.run(
        [require("openssl"), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
