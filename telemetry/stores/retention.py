"""How long rows are kept. Settings limit raw rows and the findings log. Small summary tables are kept forever.

    RANKSCOPE_FINDINGS_DAYS=365    findings, finding_actions: a year unless it is set
    RANKSCOPE_RETENTION_DAYS=30    spans, samples, host_samples, profile_parts, otel_*: whole parts are deleted 30 days
                                   after their newest row
                                   ranks, marks, heartbeats, evidence, host_events, claims ...: kept

See ``docs/adr/0013-retention-deletes-whole-parts.md``.
"""

import re
from dataclasses import dataclass

from telemetry.errors import UsageError
from telemetry.stores.cluster import LOCAL, is_modern
from telemetry.stores.migrations import Database, version_of

OTEL_TABLES = (
    *("otel_spans", "otel_logs", "otel_metrics_gauge", "otel_metrics_sum", "otel_metrics_histogram"),
    *("otel_metrics_exponential_histogram", "otel_metrics_summary"),
)
RAW_TABLES = ("spans", "samples", "host_samples", "profile_parts", *OTEL_TABLES)
FINDINGS_TABLES = ("findings", "finding_actions")
FOR_EVER = 0

_CURRENT = re.compile(r"TTL inserted_on \+ toIntervalDay\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The number of days that rows are kept after they were stored. :data:`FOR_EVER` means no limit, None no change."""

    raw_days: int | None = None
    findings_days: int | None = None


NO_CHANGE = Limits()


def retain(database: Database, limits: Limits) -> None:
    """Set the limits. Safe to repeat.

    Raises:
        UsageError: the server is too old to delete rows automatically.
    """
    for statement in plan(database, limits):
        database.execute(statement)


def plan(database: Database, limits: Limits) -> list[str]:
    """The statements that :func:`retain` would run now. Empty if the settings are the same.

    Raises:
        UsageError: as :func:`retain`.
    """
    return [
        *_plan(database, RAW_TABLES, limits.raw_days, "RANKSCOPE_RETENTION_DAYS"),
        *_plan(database, FINDINGS_TABLES, limits.findings_days, "RANKSCOPE_FINDINGS_DAYS"),
    ]


def _plan(database: Database, tables: tuple[str, ...], days: int | None, setting: str) -> list[str]:
    if days is None:
        return []
    assert days >= 0, days
    version = version_of(database)
    if is_modern(version):
        current = _current_days(database, tables)
        changed = [table for table, limit in current.items() if limit != days]
        return [statement for table in changed for statement in _statements(database, table, days)]
    if days:
        raise UsageError(
            f"this ClickHouse server ({version[0]}.{version[1]}) cannot delete old rows automatically",
            hint=f"unset {setting}. To delete old rows, drop partitions: each contains the rows inserted in one month",
        )
    return []


def _current_days(database: Database, tables: tuple[str, ...]) -> dict[str, int]:
    """The limit of each of ``tables`` that exists."""
    names = ", ".join(f"'{_stored(database, table)}'" for table in tables)
    found = database.query(
        f"SELECT name, engine_full FROM system.tables WHERE database = '{database.name}' AND name IN ({names})"
    )
    limits = {row["name"].removesuffix(LOCAL): _CURRENT.search(row["engine_full"]) for row in found.to_pylist()}
    return {name: int(limit[1]) if limit else FOR_EVER for name, limit in limits.items()}


def _statements(database: Database, table: str, days: int) -> list[str]:
    """Statements that set the limit of a table. Existing parts are not rewritten."""
    on = f" ON CLUSTER {database.cluster}" if database.cluster else ""
    head = f"ALTER TABLE {_stored(database, table)}{on}"
    if not days:
        return [f"{head} REMOVE TTL"]
    return [
        f"{head} MODIFY SETTING ttl_only_drop_parts = 1, materialize_ttl_recalculate_only = 1",
        f"{head} MODIFY TTL inserted_on + toIntervalDay({days})",
    ]


def _stored(database: Database, table: str) -> str:
    """The table that has the rows."""
    return f"{table}{LOCAL}" if database.cluster else table
