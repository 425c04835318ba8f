"""Brings a database to the schema of this version: numbered scripts once each, then the views."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from telemetry.stages import Stage, Stream
from telemetry.stores.dialect import parse_version, statements

SCHEMA = Path(__file__).with_name("schema")
VIEWS = SCHEMA / "views.sql"
_NEW_COLUMN = re.compile(r"ALTER TABLE (\w+) ADD COLUMN (?:IF NOT EXISTS )?(\w+)")

_LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (number UInt32, name String, applied_at DateTime DEFAULT now())
ENGINE = MergeTree ORDER BY number
"""


def migrate(execute: Callable[[str], None], query: Callable[[str], pa.Table]) -> None:
    """Apply what is missing, in order. A script killed halfway is repeated: each statement allows that."""
    version = parse_version(query("SELECT version() AS version")["version"][0].as_py())
    execute(_LEDGER)
    applied = set(query("SELECT number FROM migrations")["number"].to_pylist())
    for script in sorted(SCHEMA.glob("[0-9]*.sql")):
        number = int(script.name.split("_")[0])
        if number not in applied:
            for statement in statements(script.read_text(), version):
                if not _has_column_of(statement, query):
                    execute(statement)
            execute(f"INSERT INTO migrations (number, name) SELECT {number}, '{script.stem}'")
    for statement in statements(_with_vocabulary(VIEWS.read_text()), version):
        execute(statement)


def _has_column_of(statement: str, query: Callable[[str], pa.Table]) -> bool:
    """Whether ``statement`` only adds a column that is there: old servers cannot be told to pass that over."""
    added = _NEW_COLUMN.search(statement)
    if added is None:
        return False
    table, column = added.groups()
    found = f"database = currentDatabase() AND table = '{table}' AND name = '{column}'"
    return bool(query(f"SELECT name FROM system.columns WHERE {found}").num_rows)


def _with_vocabulary(script: str) -> str:
    """Views spell codes as names, so they are made anew whenever the vocabulary may have grown."""
    names = {
        "{stage_codes}": [int(stage) for stage in Stage],
        "{stage_labels}": [stage.label for stage in Stage],
        "{stream_codes}": [int(stream) for stream in Stream],
        "{stream_labels}": [stream.label for stream in Stream],
    }
    for mark, values in names.items():
        script = script.replace(mark, str(values))
    return script
