"""The queries of the Grafana board. Variables and macros are expanded as Grafana and its ClickHouse plugin do it.

${run:singlequote}   Grafana: the chosen values in single quotes, commas between them
${attempt}           Grafana: the value as it is
$__timeFilter(x)     plugin: x >= toDateTime(FROM) AND x <= toDateTime(TO)
$__timeInterval(x)   plugin: toStartOfInterval(toDateTime(x), INTERVAL N second)
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.deploy.compose_file import DEPLOY

PATH = DEPLOY / "grafana/boards/rankscope.json"
_MACRO = re.compile(r"\$__(\w+)\(")
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query of the board, and its place on the board."""

    where: str
    kind: str
    """The type of the panel, or ``variable`` or ``annotation``."""
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The selected time range, in seconds since 1970, and the width of a bucket."""

    first_s: int
    last_s: int
    bucket_s: int = 1


def read_board() -> dict[str, Any]:
    board: dict[str, Any] = json.loads(PATH.read_text())
    return board


def questions(board: dict[str, Any]) -> Iterator[Question]:
    """Every query that Grafana sends when the board opens."""
    for one in board["templating"]["list"]:
        if one["type"] == "query":
            yield Question(where=f"variable {one['name']}", kind="variable", sql=one["query"]["rawSql"])
    for one in board["annotations"]["list"]:
        yield Question(where=f"annotation {one['name']}", kind="annotation", sql=one["target"]["rawSql"])
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield Question(where=f"panel {panel['title']}", kind=panel["type"], sql=target["rawSql"])


def written_out(sql: str, chosen: Mapping[str, list[str]], window: Window) -> str:
    """The SQL that the server gets.

    Raises:
        KeyError: a variable that the board does not have, or a macro that the plugin does not know.
    """
    return _with_macros(_VARIABLE.sub(lambda match: _value(match[2], chosen[match[1]]), sql), window)


def _value(form: str | None, values: list[str]) -> str:
    if form is None:
        (value,) = values
        return value
    assert form == "singlequote", form
    return ",".join("'" + value.replace("'", "\\'") + "'" for value in values)


def _with_macros(sql: str, window: Window) -> str:
    while match := _MACRO.search(sql):
        end = _closing(sql, match.end())
        inside = sql[match.end() : end]
        assert "," not in inside, f"the plugin would take {inside} for two arguments"
        sql = sql[: match.start()] + _macro(match[1], inside, window) + sql[end + 1 :]
    return sql


def _macro(name: str, inside: str, window: Window) -> str:
    known = {
        "timeFilter": f"{inside} >= toDateTime({window.first_s}) AND {inside} <= toDateTime({window.last_s})",
        "timeInterval": f"toStartOfInterval(toDateTime({inside}), INTERVAL {window.bucket_s} second)",
    }
    return known[name]


def _closing(sql: str, start: int) -> int:
    """Position of the parenthesis that closes the one opened before ``start``."""
    depth = 1
    for at, letter in enumerate(sql[start:], start):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return at
    raise AssertionError(f"no end of {sql[start:]}")
