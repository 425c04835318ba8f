"""The reduced form of a cluster for Debian's server 18.16, which is used in tests.

modern (23.1 and up)                          18.16
path with the macro {database}                the name: "No macro database in config"
AS spans_local                                AS database.spans_local: ON CLUSTER looks in `default`
ALTER TABLE spans ON CLUSTER ADD COLUMN       DROP and CREATE of this Distributed table, which has no rows:
                                              "Table spans isn't replicated, but shard #1 is replicated"
insert_quorum = 'auto'                        the majority of the replicas of the largest shard
clusterAllReplicas(cluster, ...)              remote('host:port', ...) for each server
"""

import re
from collections.abc import Iterable, Mapping

from telemetry.stores.cluster import CLUSTER_SETTINGS, Version

VERSION: Version = (18, 16)
"""The only old version for which there is this form."""

UNAVAILABLE = 279
"""Error code: no connection to another server."""
_UNKNOWN_SETTINGS = frozenset({"insert_quorum_parallel"})
"""The server behaves as with 0."""
_DISTRIBUTED = re.compile(r"CREATE TABLE IF NOT EXISTS (?P<name>\w+) (?P<on>ON CLUSTER \w+) AS ")
_ADDED = re.compile(r"(?:\s*--[^\n]*\n)*ALTER TABLE (?P<name>\w+) (?P<on>ON CLUSTER \w+) ADD COLUMN")


def reduced(statement: str, *, database: str, distributed: Mapping[str, str]) -> list[str]:
    """Convert a statement of the modern form. ``distributed``: name -> statement that creates this Distributed table,
    in the modern form."""
    statement = statement.replace("{database}", database)
    if made := _DISTRIBUTED.match(statement):
        return [f"{statement[: made.end()]}{database}.{statement[made.end() :]}"]
    added = _ADDED.match(statement)
    if added is None or added["name"] not in distributed:
        return [statement]
    dropped = f"DROP TABLE IF EXISTS {added['name']} {added['on']}"
    return [dropped, *reduced(distributed[added["name"]], database=database, distributed={})]


def distributed_tables(statements: Iterable[str]) -> dict[str, str]:
    """Name -> statement, of those ``statements`` that create a Distributed table."""
    return {made["name"]: statement for statement in statements if (made := _DISTRIBUTED.match(statement))}


def settings(num_replicas: int) -> dict[str, object]:
    """Settings of a connection. ``num_replicas``: of the largest shard."""
    known = {name: value for name, value in CLUSTER_SETTINGS.items() if name not in _UNKNOWN_SETTINGS}
    return known | {"insert_quorum": num_replicas // 2 + 1}


def hosts(cluster: str) -> str:
    """SQL that lists every server of a cluster once, as ``host:port``."""
    return f"""
    SELECT DISTINCT concat(host_name, ':', toString(port)) AS host FROM system.clusters WHERE cluster = '{cluster}'
    """


def running_inserts(host: str, *, user: str, password: str, mark: str) -> str:
    """SQL that lists the query ids of inserts on a server. The parameters are literals of SQL.

    If the server does not answer within seconds, the error is :data:`UNAVAILABLE`. It is the same for ``remote`` with
    all servers of a cluster, even with ``skip_unavailable_shards``, if the first of them does not answer.
    """
    return f"""
    SELECT DISTINCT initial_query_id AS id FROM remote({host}, system, processes, {user}, {password})
    WHERE startsWith(initial_query_id, {mark})
    SETTINGS receive_timeout = 2, connections_with_failover_max_tries = 1
    """
