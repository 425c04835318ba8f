"""The part of an address that filters the findings log: ``kind=nic-flap&severity=critical&state=firing&since=7d``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from diagnose.alerts.logged import LogState
from diagnose.alerts.moments import moment_ns
from diagnose.findings import Kind, Severity
from ui.dashboard.address_fields import ReadField, whole_number

ALL = "all"
"""The value of a choice that is no condition."""
MAX_PAGE = 100_000
MAX_TIME = 32
"""Characters of a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The filter of the findings log, and the page. An empty field is no condition. Run and host are other fields of
    the address."""

    kind: str = ""
    severity: str = ""
    state: LogState | None = None
    since: str = ""
    """A date, or a duration before now: ``2026-11-27 14:00``, ``7d``."""
    until: str = ""
    page: int = 1

    def fields(self) -> dict[str, object]:
        """Name -> value of each field of the address. A field whose value is None is not in the address."""
        texts = {"kind": self.kind, "severity": self.severity, "since": self.since, "until": self.until}
        state, page = self.state and self.state.value, None if self.page == 1 else self.page
        return {**{name: text or None for name, text in texts.items()}, "state": state, "page": page}


ALL_FINDINGS = LogView()


_CONVERT: dict[str, Callable[[str], Any]] = {
    "kind": lambda text: str(Kind(text)),
    "severity": lambda text: str(Severity(text)),
    "state": LogState,
    "since": lambda text: _time(text),
    "until": lambda text: _time(text),
}
_READ = {**_CONVERT, "page": lambda text: whole_number(text, 1, MAX_PAGE)}
LOG_FIELDS = tuple(_CONVERT)
"""Fields that a control sets."""


def read_log_view(read: ReadField) -> LogView:
    """The filter in an address."""
    values: dict[str, Any] = {name: read(name, convert, getattr(ALL_FINDINGS, name)) for name, convert in _READ.items()}
    return LogView(**values)


def with_log_field(view: LogView, name: str, text: str) -> LogView:
    """The first page of the filter after a control was set. An empty text, and :data:`ALL`, remove the condition.

    Raises:
        ValueError: the text is not valid.
    """
    value = getattr(ALL_FINDINGS, name) if text in ("", ALL) else _CONVERT[name](text)
    return replace(view, page=1, **{name: value})


def _time(text: str) -> str:
    if len(text) > MAX_TIME:
        raise ValueError(text)
    moment_ns(text, 0)
    return text
