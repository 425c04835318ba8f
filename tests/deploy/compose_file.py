"""Reads docker-compose.yml for tests: merged anchors, and the variables that a user must set."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = ROOT / "docker-compose.yml"
OPEN = DEPLOY / "open.yml"
"""The additional file for agents on other machines."""

_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([?-])([^}]*))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A ``${NAME:?message}`` or ``${NAME:-default}``."""

    name: str
    required: bool
    default: str | None


def services(path: Path = COMPOSE) -> dict[str, dict[str, Any]]:
    """Name of a service -> its entry in the file."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["services"]
    return found


def blanks(text: str) -> list[Blank]:
    """Every variable of the environment that ``text`` asks for."""
    return [
        Blank(name=name, required=kind == "?", default=words if kind == "-" else None)
        for name, kind, words in _VARIABLE.findall(text)
    ]


def filled(text: str, values: dict[str, str]) -> str:
    """``text`` as compose fills it in.

    Raises:
        KeyError: a variable has neither a value nor a default.
    """

    def value(match: re.Match[str]) -> str:
        name, kind, words = match.groups()
        return values.get(name) or (words if kind == "-" else values[name])

    return _VARIABLE.sub(value, text).replace("$$", "$")


def environment(service: str, values: dict[str, str]) -> dict[str, str]:
    """The environment of a service's process."""
    said: dict[str, str] = services()[service]["environment"]
    return {name: filled(text, values) for name, text in said.items()}


def mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """(source, target) of each volume: a path that begins with a dot, or a name."""
    return [(source, target) for source, target, *_ in (one.split(":") for one in service.get("volumes", ()))]
