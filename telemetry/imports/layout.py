"""The layout file of a trace of the straggler analysis: flat YAML, ``dp_size: 2`` and so on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import read_input

MAX_BYTES = 2**20
MAX_DEGREE = 2**20
META_HINT = "the file needs lines like `dp_size: 2`; --meta FILE selects another file"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLayout:
    """Degrees of parallelism of a job, and its name if the file has one."""

    trial_name: str
    dp: int
    pp: int
    vpp: int
    """Model chunks of a pipeline rank."""
    tp: int
    dsp: int
    """Ranks that share the sequence of one data-parallel rank."""


def read_layout(path: Path) -> JobLayout:
    """The layout in ``path``.

    Raises:
        UnreadableError: there is no such file, it is not flat YAML, or a degree is missing or invalid.
    """
    values = _flat(path)
    return JobLayout(
        trial_name=str(values.get("trial_name") or ""),
        **{name: _degree(path, values, f"{name}_size") for name in ("dp", "pp")},
        **{name: _degree(path, values, f"{name}_size", otherwise=1) for name in ("vpp", "tp", "dsp")},
    )


def find_layout(trace: Path) -> Path:
    """The path of the file ``meta-NAME.yaml`` beside ``trace``, which is named ``trace-NAME.parquet``.

    Raises:
        UsageError: there is none.
    """
    beside = trace.with_name(f"meta-{trace.stem.removeprefix('trace-')}.yaml")
    if not beside.is_file():
        raise UsageError(f"no layout of the job: {beside} is missing", hint="give the file: --meta FILE")
    return beside


def _flat(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(read_input(path, max_bytes=MAX_BYTES))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}", hint=META_HINT) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not YAML", hint=META_HINT) from error
    if not isinstance(values, dict) or any(isinstance(value, dict | list) for value in values.values()):
        raise UnreadableError(f"{path} has no lines of `key: value`", hint=META_HINT)
    return values


def _degree(path: Path, values: dict[str, Any], key: str, otherwise: int | None = None) -> int:
    value = values.get(key, otherwise)
    if value is None:
        raise UnreadableError(f"{path} has no {key}", hint=META_HINT)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_DEGREE:
        raise UnreadableError(f"{path}: {key} is {str(value)[:40]!r}", hint="a degree is a whole number of at least 1")
    return value
