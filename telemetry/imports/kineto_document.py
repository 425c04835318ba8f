"""The document of the PyTorch profiler (libkineto's Chrome trace): facts about its job, and the times of events.

{"distributedInfo": {"rank", "world_size"}, "host_name", "baseTimeNanoseconds", "traceEvents": [{"ts", "dur"}, ...]}
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.text_input import document_of

FORMAT_HINT = "give a .json or .json.gz file from torch.profiler's export_chrome_trace or tensorboard_trace_handler"
MAX_TIME_US = 2**62 / 1000
_BY_HANDLER = re.compile(r"(?P<host>.+)_\d+\.\d+\.pt\.trace\.json(\.gz)?")
"""Names from ``tensorboard_trace_handler``: host, process and time. The number in such a name is not a rank."""
_RANK_IN_NAME = (re.compile(r"rank[-_]?(\d+)", re.IGNORECASE), re.compile(r"_(\d+)\."))


def parsed(path: Path, max_bytes: int | None = None) -> dict[str, Any]:
    """The document in a file. Its ``traceEvents`` are a list.

    Raises:
        UsageError, UnreadableError: as :func:`telemetry.imports.text_input.document_of`, or it has no such list.
    """
    trace = document_of(path, FORMAT_HINT, max_bytes)
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise UnreadableError(f"{path} has no traceEvents", hint=FORMAT_HINT)
    return trace


def base_of(trace: Mapping[str, Any]) -> int:
    """Nanoseconds that are added to every ``ts``."""
    return whole_number(trace.get("baseTimeNanoseconds")) or 0


def job_of(trace: Mapping[str, Any]) -> Mapping[str, Any]:
    """``distributedInfo``. Empty if it is missing."""
    info = trace.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def times_of(event: Mapping[str, Any], base_ns: int, path: Path) -> tuple[int, int]:
    """Begin and end of an event, nanoseconds since the epoch.

    Raises:
        UnreadableError: these are not valid times. ``path`` is for the message.
    """
    begin, lasts = event.get("ts"), event.get("dur", 0)
    latest_us = MAX_TIME_US - base_ns / 1000
    if not (_is_time(begin, latest_us) and _is_time(lasts, latest_us)):
        raise UnreadableError(
            f"{path}: {str(event.get('name'))[:80]!r} has invalid times {str(begin)[:40]}, {str(lasts)[:40]}",
            hint=FORMAT_HINT,
        )
    begin_ns = base_ns + _nanoseconds(begin)
    return begin_ns, begin_ns + _nanoseconds(lasts)


def _is_time(value: Any, latest_us: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= latest_us


def _nanoseconds(time_us: Any) -> int:
    """Nanoseconds with the full precision of the number. ``time_us * 1000`` would lose digits in a double."""
    whole = int(time_us)
    fraction: float = time_us - whole
    return whole * 1000 + round(fraction * 1000)


def rank_in_name(path: Path) -> int | None:
    """The rank in the name of a file: ``rank3.json``, ``trace_3.json``."""
    if _BY_HANDLER.fullmatch(path.name):
        return None
    found = next((match for pattern in _RANK_IN_NAME if (match := pattern.search(path.name))), None)
    return int(found[1]) if found else None


def host_of(path: Path, trace: Mapping[str, Any]) -> str:
    """The host on which a file was recorded; empty if unknown."""
    if isinstance(trace.get("host_name"), str):
        return str(trace["host_name"])
    match = _BY_HANDLER.fullmatch(path.name)
    return match["host"] if match else ""


def whole_number(value: Any) -> int | None:
    """``value`` as a whole number of at least 0. It may be a text. Otherwise None."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
