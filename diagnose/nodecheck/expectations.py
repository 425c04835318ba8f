"""What a healthy node reaches, as its owner knows it: a TOML file of lowest values.

    gemm_tflops = 600
    disk_write_gb_s = 1.2

Every name is optional. Nothing is expected by default: what is fast depends on the machine.
"""

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.input_file import read_input

MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The least that is not called slow."""

    host_memory_gb_s: float | None = None
    device_memory_gb_s: float | None = None
    gemm_tflops: float | None = None
    host_copy_gb_s: float | None = None
    host_to_device_gb_s: float | None = None
    device_to_host_gb_s: float | None = None
    device_to_device_gb_s: float | None = None
    loopback_gb_s: float | None = None
    nic_pair_gb_s: float | None = None
    all_to_all_gb_s: float | None = None
    neighbours_gb_s: float | None = None
    disk_write_gb_s: float | None = None
    shared_memory_gb_s: float | None = None
    shared_memory_free_gib: float | None = None

    def of(self, measured: str) -> float | None:
        """What is expected of a value of that name."""
        value: float | None = getattr(self, measured, None)
        return value


def read_expectations(path: Path) -> Expectations:
    """Raises:
    UnreadableError: it cannot be read or is no TOML.
    UsageError: an unknown name, or a value that is no positive number.
    """
    try:
        given = tomllib.loads(read_input(path, max_bytes=MAX_BYTES).decode())
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"cannot read expectations from {path}: {error}", hint="a line is: NAME = NUMBER"
        ) from error
    known = [field.name for field in fields(Expectations)]
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"{path} expects something of {name!r}, which nothing measures", hint=f"known: {', '.join(known)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UsageError(f"{path}: {name} = {value!r} is no positive number", hint="the least that is not slow")
    return Expectations(**given)
