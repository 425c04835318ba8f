"""Brings a database to the schema of this version: numbered scripts once each, then the views.

    0001 --> 0002 --> ... --> newest --> views, recreated when their text has changed
      each: its statements, then a row in `migrations`; the views have number 0
    a new embedded store: `after_0015.sql` --> 0016 --> ... --> newest --> views

Migrations only go forward and only add, so a collector of the previous version can keep running. Any statement may be
repeated. So a process can repeat a migration that was interrupted, or that another collector runs at the same time.
A released script is never changed: a new script changes its tables.
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from telemetry.errors import UnreachableError, UsageError
from telemetry.stages import Stage, Stream
from telemetry.stores import old_cluster
from telemetry.stores.cluster import Version, clustered, is_modern, parse_version, statements

SCHEMA = Path(__file__).with_name("schema")
VIEWS = SCHEMA / "views.sql"
AFTER = SCHEMA / "after_0015.sql"
LAST_IN_AFTER = 15
"""Number of the last script whose changes are in the tables of :data:`AFTER`."""
PAUSES_S = (0.1, 0.3, 0.9, 0.0)
"""Pauses after failed attempts of a statement: another collector may run the same statement. After the attempt with a
pause of 0, the error is raised."""
_NEW_COLUMN = re.compile(r"ALTER TABLE (\w+)(?: ON CLUSTER \w+)? ADD COLUMN (?:IF NOT EXISTS )?(\w+)")
_VIEW = re.compile(r"CREATE OR REPLACE VIEW (\w+)")
LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (number UInt32, name String, applied_at DateTime DEFAULT now())
ENGINE = MergeTree ORDER BY number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """A database, for the scripts of the schema."""

    execute: Callable[[str], None]
    query: Callable[[str], pa.Table]
    name: str
    cluster: str | None = None
    has_one_owner: bool = False
    """Whether no other process can change the database at the same time."""


def migrate(database: Database) -> None:
    """Run the missing scripts, in order.

    Raises:
        UsageError: the database is of a newer version than this program.
    """
    for statement in plan(database):
        _apply(statement, database)


def plan(database: Database) -> list[str]:
    """The statements that :func:`migrate` would run now.

    Raises:
        UsageError: as :func:`migrate`.
    """
    version = version_of(database)
    applied = applied_scripts(database)
    check_not_newer(applied)
    scripts = _created(version) if _is_new(database) else _steps(applied, version)
    steps = [*scripts, *_views(database, version, is_new=not applied)]
    written = _rendered(steps, database, version)
    return [statement for statement in written if not _has_column_of(statement, database)]


def check_current(database: Database) -> None:
    """Check that the tables have the schema of this version, for a process that only reads.

    Raises:
        UsageError: the tables are older or newer.
    """
    applied = applied_scripts(database)
    check_not_newer(applied)
    if missing := [number for number, _ in _scripts() if number not in applied]:
        raise UsageError(
            f"database {database.name} lacks scripts {', '.join(map(str, missing))} of the schema",
            hint="`rankscope migrate` or a collector of this version upgrades it",
        )


def check_not_newer(applied: set[int]) -> None:
    newest = max(number for number, _ in _scripts())
    if applied and max(applied) > newest:
        raise UsageError(
            f"the database has schema {max(applied)}, this version of rankscope supports {newest}",
            hint="upgrade rankscope: a database cannot be downgraded",
        )


def applied_scripts(database: Database) -> set[int]:
    """Numbers of the scripts that were run in the database. Empty for an empty database."""
    ledger = f"SELECT name FROM system.tables WHERE database = '{database.name}' AND name = 'migrations'"
    if not database.query(ledger).num_rows:
        return set()
    numbers = database.query(f"SELECT number FROM {database.name}.migrations WHERE number > 0")
    return set(numbers["number"].to_pylist())


def version_of(database: Database) -> Version:
    """The version of the database server."""
    return parse_version(database.query("SELECT version() AS version")["version"][0].as_py())


def _scripts() -> list[tuple[int, Path]]:
    return [(int(path.name.split("_")[0]), path) for path in sorted(SCHEMA.glob("[0-9]*.sql"))]


def _is_new(database: Database) -> bool:
    """Whether the database has no tables, and no other process creates any. Tables of an unknown version need every
    script."""
    tables = f"SELECT name FROM system.tables WHERE database = '{database.name}'"
    return database.has_one_owner and not database.query(tables).num_rows


def _created(version: Version) -> Iterator[str]:
    """Statements that create the tables as after script ``LAST_IN_AFTER``, then the remaining scripts."""
    yield from statements(AFTER.read_text(), version)
    yield LEDGER.strip()
    contained = [(number, path.stem) for number, path in _scripts() if number <= LAST_IN_AFTER]
    yield f"INSERT INTO migrations (number, name) VALUES {', '.join(map(str, contained))}"
    yield from _steps({number for number, _ in contained}, version)


def _steps(applied: set[int], version: Version) -> Iterator[str]:
    if not applied:
        yield LEDGER.strip()
    for number, path in _scripts():
        if number not in applied:
            yield from statements(path.read_text(), version)
            yield f"INSERT INTO migrations (number, name) SELECT {number}, '{path.stem}'"


def _views(database: Database, version: Version, *, is_new: bool) -> list[str]:
    """Statements that create the views; empty if the views are current. They are not written without need: if the disk
    is full at that moment, the engine writes an empty definition and does not start again."""
    wanted = statements(_with_vocabulary(VIEWS.read_text()), version)
    name = f"views {sha256(repr(wanted).encode()).hexdigest()[:16]}"
    if not wanted or not (is_new or _lacks_views(database, wanted, name)):
        return []
    return [*wanted, f"INSERT INTO migrations (number, name) SELECT 0, '{name}'"]


def _lacks_views(database: Database, wanted: list[str], name: str) -> bool:
    applied = database.query(f"SELECT name FROM {database.name}.migrations WHERE number = 0 AND name = '{name}'")
    tables = database.query(f"SELECT name FROM system.tables WHERE database = '{database.name}'")["name"].to_pylist()
    views = [match[1] for statement in wanted if (match := _VIEW.search(statement))]
    return not applied.num_rows or not {*views} <= {*tables}


def _rendered(steps: Iterable[str], database: Database, version: Version) -> list[str]:
    cluster, name = database.cluster, database.name
    if cluster is None:
        return [*steps]

    def on_cluster(statements: Iterable[str]) -> list[str]:
        return [text for statement in statements for text in clustered(statement, cluster=cluster, database=name)]

    if is_modern(version):
        return on_cluster(steps)
    distributed = old_cluster.distributed_tables(on_cluster(_steps(set(), version)))
    texts = on_cluster(steps)
    return [one for text in texts for one in old_cluster.reduced(text, database=name, distributed=distributed)]


def _apply(statement: str, database: Database) -> None:
    """Run a statement. It is repeated after an error: if two collectors create a table at once, both may fail."""
    for pause_s in PAUSES_S:
        try:
            if not _has_column_of(statement, database):
                database.execute(statement)
            return
        except UnreachableError:
            if not pause_s:
                raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))


def _has_column_of(statement: str, database: Database) -> bool:
    """Whether ``statement`` only adds a column that exists. Old servers do not support ``IF NOT EXISTS`` here."""
    added = _NEW_COLUMN.search(statement)
    if added is None:
        return False
    table, column = added.groups()
    found = f"database = '{database.name}' AND table = '{table}' AND name = '{column}'"
    return bool(database.query(f"SELECT name FROM system.columns WHERE {found}").num_rows)


def _with_vocabulary(script: str) -> str:
    """The script of the views with the codes and names of stages and streams. If there are new names, the text changes,
    and the views are created again."""
    names = {
        "{stage_codes}": [int(stage) for stage in Stage],
        "{stage_labels}": [stage.label for stage in Stage],
        "{stream_codes}": [int(stream) for stream in Stream],
        "{stream_labels}": [stream.label for stream in Stream],
    }
    for mark, values in names.items():
        script = script.replace(mark, str(values))
    return script
