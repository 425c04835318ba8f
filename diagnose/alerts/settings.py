"""The rules file (TOML), with rules and hooks. It is checked completely before the watcher starts.

    dashboard = "https://rankscope.example"   every = "5s"   state = "/var/lib/rankscope/alerts.sqlite"
    [flapping]            times  within  quiet
    [rules]               for  keep_firing_for  severity  hooks        for all kinds
    [rules.KIND]          the same keys for one kind
    [hooks.NAME]          type, and the keys of that type

``[rules.KIND]`` overrides ``[rules]``, which overrides the defaults. Durations are ``"30s"``, ``"5m"``, ``"1h"`` or a
number of seconds.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from diagnose.alerts.hooks.interface import Hook, passes_silences
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.rules import DEFAULTS, Flapping, Policy, Rule
from diagnose.findings import Kind, Severity
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import read_input
from telemetry.printable import cut

DEFAULT_EVERY_S = 5.0
MIN_EVERY_S = 0.2
MAX_S = 366 * 86_400.0
MAX_BYTES = 2**20
"""Largest size of a rules file."""
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LOG: Mapping[str, Mapping[str, object]] = {"log": {"type": "log"}}
"""The hooks if the file has none: lines on stderr."""
_OF_RULE = ("for", "keep_firing_for", "severity", "hooks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Content of the file. :func:`make_hooks` creates the hooks, which may need secrets."""

    rules: Mapping[str, Rule]
    flapping: Flapping = field(default_factory=Flapping)
    hooks: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: LOG)
    every_s: float = DEFAULT_EVERY_S
    dashboard: str = ""
    state: Path | None = None

    def policy(self, hooks: Iterable[Hook]) -> Policy:
        """Settings of the state machine."""
        known = tuple(hooks)
        return Policy(
            rules=self.rules,
            flapping=self.flapping,
            resend_s={hook.name: float(hook.resend_s) for hook in known},
            dashboard=self.dashboard,
            silencing=frozenset(hook.name for hook in known if passes_silences(hook)),
        )


def default_state_file(environment: Mapping[str, str] = os.environ) -> Path:
    """``rankscope/alerts.sqlite`` in the state folder of this user (XDG_STATE_HOME)."""
    folder = environment.get("XDG_STATE_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".local" / "state") / "rankscope/alerts.sqlite"


def default_settings() -> Settings:
    """Settings without a file: the default rules, and lines on stderr."""
    return parse_settings("", where="defaults")


def read_settings(path: Path) -> Settings:
    """The settings in a file.

    Raises:
        UnreadableError: it is missing, or not valid TOML.
        UsageError: a key or value is unknown, of the wrong type, or out of range.
    """
    try:
        text = read_input(path, max_bytes=MAX_BYTES).decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UnreadableError(f"{path}: {why}", hint="give a file with rules; see docs/guides/alerts.md") from None
    settings = parse_settings(text, where=str(path))
    return replace(settings, state=settings.state and path.parent / settings.state)


def parse_settings(text: str, *, where: str) -> Settings:
    """The settings in a text; see :func:`read_settings`. Errors begin with ``where``."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also raised by very long numbers and very deep nesting
        raise UnreadableError(
            f"{where}: invalid TOML: {error}", hint="see docs/guides/alerts.md for an example"
        ) from None
    top = _Table(document, where, "", ("dashboard", "every", "state", "flapping", "rules", "hooks"))
    hooks = _hooks(top, where)
    flapping = top.table("flapping", ("times", "within", "quiet"))
    usual = Flapping()
    state = top.text("state", "")
    return Settings(
        rules=_rules(top, where, hooks),
        flapping=Flapping(
            times=flapping.count("times", usual.times),
            within_s=flapping.duration("within", usual.within_s),
            quiet_s=flapping.duration("quiet", usual.quiet_s),
        ),
        hooks=hooks,
        every_s=top.duration("every", DEFAULT_EVERY_S, least_s=MIN_EVERY_S),
        dashboard=checked_dashboard(top.text("dashboard", ""), where),
        state=checked_state(Path(state), f"{where}: state") if state else None,
    )


def make_hooks(settings: Settings) -> tuple[Hook, ...]:
    """The hooks of the file.

    Raises:
        UsageError: the table of a hook is invalid, or a secret is missing.
    """
    return tuple(make_hook(name, table) for name, table in settings.hooks.items())


def checked_dashboard(address: str, where: str = "--dashboard") -> str:
    """``address``, the start of all links.

    Raises:
        UsageError: it is not a valid address.
    """
    if address and not re.fullmatch(r"https?://[^\s?#]+", address):
        raise UsageError(f"{where}: dashboard is {address!r}", hint='use an address such as "http://127.0.0.1:8719"')
    return address


def checked_state(path: Path, where: str = "--state") -> Path:
    """``path`` of the alert state, with ``~`` expanded.

    Raises:
        UsageError: it is not a valid path of a file.
    """
    try:
        expanded = path.expanduser()
    except RuntimeError:  # no such user
        expanded = Path()
    if not expanded.name or "\0" in str(expanded):
        raise UsageError(
            f"{where} is {str(path)!r}", hint="use the path of a file, such as /var/lib/rankscope/alerts.sqlite"
        )
    return expanded


def _hooks(top: "_Table", where: str) -> Mapping[str, Mapping[str, object]]:
    tables = top.tables("hooks")
    for name in tables:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise UsageError(f"{where}: hooks.{name!r} is not a valid name", hint="use only letters, digits, - and _")
    return tables or LOG


def _rules(top: "_Table", where: str, hooks: Mapping[str, object]) -> dict[str, Rule]:
    tables = top.tables("rules", except_keys=_OF_RULE)
    for kind in tables:
        if kind not in set(Kind):
            raise UsageError(f"{where}: rules.{kind}: unknown kind of finding", hint=_nearest(kind, Kind))
    for_all = top.table("rules", (*_OF_RULE, *tables))
    return {
        str(kind): _rule(
            _Table(tables.get(str(kind), {}), where, f"rules.{kind}", _OF_RULE),
            _rule(for_all, replace(usual, hooks=tuple(hooks)), hooks),
            hooks,
        )
        for kind, usual in DEFAULTS.items()
    }


def _rule(table: "_Table", usual: Rule, hooks: Mapping[str, object]) -> Rule:
    return Rule(
        for_s=table.duration("for", usual.for_s),
        keep_firing_for_s=table.duration("keep_firing_for", usual.keep_firing_for_s),
        severity=Severity(table.choice("severity", usual.severity, tuple(Severity))),
        hooks=table.names("hooks", usual.hooks, hooks),
    )


class _Table:
    """A table of the file. Each error names the file and the key."""

    def __init__(self, values: Mapping[str, Any], where: str, name: str, known: Iterable[str]) -> None:
        self._values = values
        self._where = where
        self._name = name
        for key in values:
            if key not in (names := list(known)):
                raise UsageError(f"{self._at(key)}: unknown key", hint=_nearest(key, names))

    def table(self, key: str, known: Iterable[str]) -> "_Table":
        """The table ``key`` in this table, or an empty table if it is missing."""
        return _Table(self._is("a table", dict, key, {}), self._where, self._prefixed(key), known)

    def tables(self, key: str, except_keys: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
        """The tables in the table ``key``, by name, without ``except_keys``."""
        named = {name: value for name, value in self._is("a table", dict, key, {}).items() if name not in except_keys}
        for name, value in named.items():
            if not isinstance(value, dict):
                raise UsageError(
                    f"{self._at(key)}.{name} is not a table",
                    hint=f"write [{key}.{name}]" + (f", or use {', '.join(except_keys)}" if except_keys else ""),
                )
        return named

    def text(self, key: str, default: str) -> str:
        return str(self._is("text", str, key, default))

    def count(self, key: str, default: int) -> int:
        number = self._is("a number", int, key, default)
        if isinstance(number, bool) or not 1 <= number <= 1000:
            raise UsageError(f"{self._at(key)} is {_shown(number)}", hint="use a whole number from 1 to 1000")
        return int(number)

    def duration(self, key: str, default: float, *, least_s: float = 0.0) -> float:
        value = self._values.get(key, default)
        seconds = _seconds(value)
        if seconds is None or not least_s <= seconds <= MAX_S:
            least = f", {least_s:g} s or more" if least_s else ""
            raise UsageError(
                f"{self._at(key)} is {_shown(value)}", hint=f'use a duration such as "30s", "5m" or 90{least}'
            )
        return seconds

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._values.get(key, default)
        if value not in choices:
            raise UsageError(f"{self._at(key)} is {_shown(value)}", hint=f"use one of {', '.join(choices)}")
        return str(value)

    def names(self, key: str, default: tuple[str, ...], known: Iterable[str]) -> tuple[str, ...]:
        values = self._is("a list of names", list, key, list(default))
        for value in values:
            if not isinstance(value, str) or value not in known:
                raise UsageError(
                    f"{self._at(key)}: unknown hook {_shown(value)}",
                    hint=f"{_nearest(value, known)}; [hooks.NAME] defines a hook",
                )
        return tuple(dict.fromkeys(values))

    def _is(self, what: str, of_type: type, key: str, default: Any) -> Any:
        value = self._values.get(key, default)
        if not isinstance(value, of_type):
            raise UsageError(f"{self._at(key)} is {_shown(value)}", hint=f"it must be {what}")
        return value

    def _at(self, key: str) -> str:
        return f"{self._where}: {self._prefixed(key)}"

    def _prefixed(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) <= MAX_S else None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)", value) if isinstance(value, str) else None
    return float(match[1]) * SECONDS[match[2]] if match else None


def _shown(value: object) -> str:
    """The start of the value's ``repr``, or its type if an integer has too many digits."""
    with suppress(ValueError, RecursionError):
        return cut(repr(value), 200)
    return f"of type {type(value).__name__} and too long"


def _nearest(word: object, known: Iterable[str]) -> str:
    names = [str(name) for name in known]
    close = get_close_matches(word, names, n=1) if isinstance(word, str) else []
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
