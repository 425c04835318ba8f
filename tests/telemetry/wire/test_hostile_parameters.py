"""SQL in any parameter of any query is treated as data or refused, on both engines."""

import json
from contextlib import suppress
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, Store, StoreReader
from telemetry.stores.queries import QUERIES
from telemetry.wire.codec import decode_query, encode_query
from tests.each_case import each_case
from tests.telemetry.made_rows import insert, made, numbered_spans

SQL = (
    "%s %% %d' OR 1 = 1 --",
    "' OR 1 = 1 --",
    "') OR (1 = 1",
    "run' UNION ALL SELECT * FROM spans --",
    "'; DROP TABLE spans; --",
    "\\' OR 1 = 1 --",
    "\\",
    "%(run_id)s' OR '1' = '1",
    "{run_id:String} $1 ?",
    "run\x00' OR 1 = 1 --",
    "\u02bc OR 1 = 1 -- \uff07 \u2019 \u00bf' OR 1=1",
    "' OR sleep(3) --",
    "run' INTO OUTFILE '/tmp/rankscope-canary' --",
)
NUMBERS = (-(2**63), -1, 0, 256, 65536, 2**32, 2**63 - 1)
ELSEWHERE = 1
"""Number of values for a parameter whose name was already tested with all values in another query. If a query writes
the parameter into its text, the first value causes an error or returns too many rows of most queries. Both engines get
the same text, so the embedded engine alone gets this value."""
NAMES = ("run_id", "metrics", "names", "kinds")
"""Parameters whose hostile values match no stored row."""
USUAL: dict[str, Any] = {
    "run_id": "run",
    "limit": 10,
    "period_ns": 1,
    "last_step": 10,
    "last_ns": 10**18,
    "attempts": (0,),
}


def usual(query: type[Query]) -> dict[str, Any]:
    """Valid parameters."""
    kinds = get_type_hints(query)
    return {field.name: USUAL.get(field.name, _usual_of(kinds[field.name])) for field in fields(query)}  # type: ignore[arg-type]


def _usual_of(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is tuple:
        return ()
    if isinstance(kind, UnionType):
        return _usual_of(get_args(kind)[0])
    return {int: 1, float: 1.0, str: "x", bool: True}[kind]


def hostile(kind: Any) -> list[Any]:
    """Hostile values of the type."""
    if get_origin(kind) is tuple:
        of = hostile(get_args(kind)[0])
        return [(one,) for one in of] + [tuple(of)]
    return {str: list(SQL), int: list(NUMBERS)}.get(kind, [])


@pytest.fixture
def filled(store: Store) -> Store:
    """A store with rows that a successful attack would find."""
    insert(store, "spans", numbered_spans(0, 20))
    insert(store, "spans", numbered_spans(0, 20), run_id="other")
    for table in ("marks", "samples", "ranks", "heartbeats", "evidence", "host_samples", "host_events"):
        insert(store, table, made(table, [{}]), run_id="other")
    return store


def test_sql_in_a_query_parameter_is_treated_as_data(filled: Store) -> None:
    reader, before, seen = StoreReader(filled, max_seconds=20), counted(filled), set[str]()
    elsewhere = ELSEWHERE if isinstance(filled, EmbeddedStore) else 0
    for query in QUERIES.values():
        kinds = get_type_hints(query)
        for field in fields(query):  # type: ignore[arg-type]
            values = hostile(kinds[field.name])
            for value in values[:elsewhere] if field.name in seen else values:
                with suppress(UsageError):  # refused before it is sent
                    asked = query(**{**usual(query), field.name: value})
                    found = answered(reader, asked)
                    assert field.name not in NAMES or found == 0, asked
            seen.add(field.name)
    assert counted(filled) == before


def answered(reader: StoreReader, query: Query) -> int:
    """Number of rows that an untrusted client gets. 0 if the query is refused."""
    try:
        return reader.read(decode_query(_json(encode_query(query)))).num_rows
    except UsageError:
        return 0


def counted(store: Store) -> dict[str, int]:
    """Rows of every table."""
    names = store.query("SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE %(kind)s",
                        {"kind": "%MergeTree"})["name"].to_pylist()  # fmt: skip
    return {name: store.query(f"SELECT count() AS n FROM {name}")["n"][0].as_py() for name in names}


@each_case("name", sorted(QUERIES))
def test_query_parameter_of_a_wrong_type_is_refused_on_the_wire(name: str) -> None:
    query = QUERIES[name]
    kinds = get_type_hints(query)
    for field in fields(query):  # type: ignore[arg-type]
        for wrong in ({"a": 1}, [["x"]], None, 1.5, "0 OR 1 = 1", [], True):
            if _fits(kinds[field.name], wrong):
                continue
            body = {"query": name, "parameters": {**encode_query(query(**usual(query)))["parameters"]}}
            body["parameters"][field.name] = wrong
            with pytest.raises(UsageError):
                decode_query(_json(body))


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, UnionType):
        return any(_fits(one, value) for one in get_args(kind))
    if get_origin(kind) is tuple:
        return value == []
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return value is None if kind is type(None) else type(value) is kind or (kind is float and type(value) is float)


def _json(body: dict[str, Any]) -> bytes:

    return json.dumps(body).encode()
