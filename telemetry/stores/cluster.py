"""Adapts the schema, which is written for the current engine, to old servers and to clusters.

modern (22 and up)                          old (Debian's 18.16)
LowCardinality(String)                      String
column codecs: CODEC(Delta, ZSTD(1))        left out: everything is LZ4
ADD COLUMN IF NOT EXISTS                    ADD COLUMN: migrations check beforehand
-- modern: this statement                   statement left out (views that need Map, DateTime64, sipHash128)

On a cluster each table becomes two, on every server:

    spans          Distributed: queries and inserts use this name. A row goes to the shard of its rank.
      |
      +-- shard 1: spans_local, Replicated*MergeTree      replica a, replica b, replica c
      +-- shard 2: spans_local                            ...

A rank belongs to one shard. So for each rank, an insert into ``spans`` is stored completely or not at all, and the
largest ``seq`` of a rank shows what is stored. Servers need the macros ``{shard}`` and ``{replica}``.
"""

import re
from collections.abc import Iterable

from telemetry.errors import UsageError

Version = tuple[int, int]

FIRST_MODERN: Version = (22, 0)
MODERN_MARK = "-- modern"

_LOW_CARDINALITY = re.compile(r"LowCardinality\((\w+)\)")


def parse_version(text: str) -> Version:
    """``26.9.2.1`` -> ``(26, 9)``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def is_modern(version: Version) -> bool:
    return version >= FIRST_MODERN


def statements(script: str, version: Version) -> list[str]:
    """The statements of a script, each in the form that a server of ``version`` understands."""
    parts = [part.strip() for part in script.split(";\n")]
    if is_modern(version):
        return [part for part in parts if part]
    return [_reduced(part) for part in parts if part and not part.startswith(MODERN_MARK)]


def _reduced(statement: str) -> str:
    reduced = statement.replace("ADD COLUMN IF NOT EXISTS", "ADD COLUMN")
    return _LOW_CARDINALITY.sub(r"\1", _CODEC.sub("", reduced))


LOCAL = "_local"
FIRST_VERSION = (23, 1)
"""First version that supports clusters as they are used here."""
CLUSTER_SETTINGS = {
    "insert_distributed_sync": 1,
    "insert_quorum": "auto",
    "insert_quorum_parallel": 0,
    "insert_quorum_timeout": 10_000,
    "select_sequential_consistency": 1,
}
"""An insert returns after most replicas of its shards have stored it. Later queries see it. After the timeout (ms) it
fails, and its rows are pending: queries see them as soon as more replicas have fetched them."""

_CREATE_TABLE = re.compile(
    r"CREATE TABLE IF NOT EXISTS (?P<name>\w+)\s*\((?P<columns>.*)\)\s*ENGINE = (?P<engine>\w+)", re.S
)
_ALTER_TABLE = re.compile(r"ALTER TABLE (?P<name>\w+)\s+(?P<what>(?:ADD|MODIFY|DROP) COLUMN)?")
_CREATE_VIEW = re.compile(r"CREATE OR REPLACE VIEW (?P<name>\w+)")
_CODEC = re.compile(r"\s+CODEC\((?:[^()]|\([^()]*\))*\)")
_UNCHANGED = re.compile(r"MODIFY COLUMN \w+\s*$")
"""A statement that changed only a codec, after the codec is removed."""
_SHARD_KEYS = (
    ("run_id", "rank"),
    ("run_id", "host"),
    ("run_id", "fingerprint"),
    ("run_id", "annotation_id"),
    ("TraceId",),
)
_WITH_QUORUM = ("spans", "marks", "samples", "ranks", "claims")
"""Tables of which the collector must know exactly what is stored."""
_IN_KEEPER = "/clickhouse/tables"
_EVERYWHERE = frozenset({"migrations"})
"""Tables without shards: each server of the cluster has all rows."""
ALL_SHARDS = "all"
"""In Keeper, the shard of these tables."""


def check_version(version: Version) -> None:
    """Check that servers of ``version`` support clusters as they are used here.

    Raises:
        UsageError: they do not.
    """
    if version < FIRST_VERSION:
        raise UsageError(
            f"the servers of the cluster have version {version[0]}.{version[1]}",
            hint=f"cluster= needs version {FIRST_VERSION[0]} or newer",
        )


def clustered(statement: str, *, cluster: str, database: str) -> list[str]:
    """Convert a statement of the schema into statements for every server of ``cluster``.

    Raises:
        UsageError: this kind of statement is not supported.
    """
    on = f"ON CLUSTER {cluster}"
    comment, statement = _split_comment(statement)
    if made := _CREATE_TABLE.match(statement):
        return _tables(made, statement, cluster, database, comment)
    if changed := _ALTER_TABLE.match(statement):
        return _changes(changed, statement, on, comment)
    if view := _CREATE_VIEW.match(statement):
        return [comment + _insert_at(statement, view.end(), f" {on}")]
    if statement.startswith("INSERT INTO migrations "):
        return [statement]
    raise UsageError(
        f"no cluster form for: {statement[:60]}", hint="report this defect: cluster.py does not support this statement"
    )


def running_on_cluster(cluster: str, mark: str) -> str:
    """SQL that lists the query ids of inserts on all servers of a cluster that answer. ``mark`` is a literal of SQL."""
    return f"""
    SELECT DISTINCT initial_query_id AS id FROM clusterAllReplicas({cluster}, system.processes)
    WHERE startsWith(initial_query_id, {mark}) SETTINGS skip_unavailable_shards = 1
    """


def shards_of_keeper() -> str:
    """SQL that lists the shards in Keeper, also those of other databases."""
    return f"SELECT name FROM system.zookeeper WHERE path = '{_IN_KEEPER}'"


def databases_of_shard(shard: str) -> str:
    """SQL that lists the databases of a shard in Keeper."""
    return f"SELECT name FROM system.zookeeper WHERE path = '{_IN_KEEPER}/{shard}'"


def pending_inserts(shards: Iterable[str], *, database: str) -> str:
    """SQL that lists the inserts of numbered rows that are stored, but not yet on most replicas of their shard. Then
    queries do not see them. At most one in each table and shard."""
    tables = [f"{_IN_KEEPER}/{shard}/{database}/{table}{LOCAL}" for shard in shards for table in _WITH_QUORUM]
    return " UNION ALL ".join(
        f"SELECT concat('{table} ', value) AS id FROM system.zookeeper"
        f" WHERE path = '{table}/quorum' AND name = 'status'"
        for table in tables
    )


def _tables(made: re.Match[str], statement: str, cluster: str, database: str, comment: str) -> list[str]:
    name, on = made["name"], f"ON CLUSTER {cluster}"
    whole = name in _EVERYWHERE
    local = name if whole else name + LOCAL
    replicated = _replicated(statement[made.start("engine") :], shard=ALL_SHARDS if whole else "{shard}", table=local)
    head = f"CREATE TABLE IF NOT EXISTS {local} {on}{statement[made.end('name') : made.start('engine')]}"
    if whole:
        return [f"{comment}{head}{replicated}"]
    key = _shard_key(made["columns"])
    spread = (
        f"CREATE TABLE IF NOT EXISTS {name} {on} AS {local} ENGINE = Distributed({cluster}, {database}, {local}, {key})"
    )
    return [f"{comment}{head}{replicated}", spread]


def _replicated(engine: str, *, shard: str, table: str) -> str:
    """``ReplacingMergeTree(at_ns) ...`` -> ``ReplicatedReplacingMergeTree('path', 'replica', at_ns) ...``."""
    name, _, rest = re.fullmatch(r"(\w+)(\(([^)]*)\))?.*", engine, re.S).group(1, 2, 3)  # type: ignore[union-attr]
    after = engine[len(name) + (len(rest) + 2 if rest is not None else 0) :]
    given = f", {rest}" if rest else ""
    return f"Replicated{name}('{_IN_KEEPER}/{shard}/{{database}}/{table}', '{{shard}}-{{replica}}'{given}){after}"


def _shard_key(columns: str) -> str:
    names = set(re.findall(r"^\s*(\w+)\s", columns, re.M))
    for key in _SHARD_KEYS:
        if names.issuperset(key):
            return f"cityHash64({', '.join(key)})"
    return "rand()"


def _changes(changed: re.Match[str], statement: str, on: str, comment: str) -> list[str]:
    """Columns change in both tables. Codecs and projections change only in the table that has the rows."""
    end = changed.end("name")
    local = _insert_at(statement, end, f"{LOCAL} {on}")
    spread = _CODEC.sub("", _insert_at(statement, end, f" {on}"))
    if changed["what"] is None or _UNCHANGED.search(spread):
        return [comment + local]
    return [comment + local, spread]


def _insert_at(text: str, position: int, piece: str) -> str:
    return text[:position] + piece + text[position:]


def _split_comment(statement: str) -> tuple[str, str]:
    """The comment lines at the start of a statement, and the rest."""
    begins = re.match(r"(?:\s*--[^\n]*\n|\s+)*", statement)
    assert begins is not None
    return statement[: begins.end()], statement[begins.end() :]
