"""A store in memory, as every test of the dashboard uses it.

Making the tables takes a fifth of a second of processor time, and taking the rows out again much less: a store that was
given back as it was made is the next one's.
"""

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from telemetry.errors import RankscopeError
from telemetry.stores.embedded import EmbeddedStore

_idle: list[tuple[EmbeddedStore, list[str]]] = []
"""Stores without rows, each with its tables as they were made."""
_filled: dict[str, tuple[EmbeddedStore, object]] = {}
"""Idle stores with rows, by the name of their contents, each with what was made of it."""
Made = TypeVar("Made")


@contextmanager
def memory_store() -> Iterator[EmbeddedStore]:
    """A store with its tables and no rows, of its user alone."""
    store, tables = _idle.pop() if _idle else _make()
    try:
        yield store
    finally:
        _give_back(store, tables)


@contextmanager
def filled_store(name: str, fill: Callable[[EmbeddedStore], Made]) -> Iterator[Made]:
    """What ``fill`` makes of an empty store. The next user of this name gets the same, so nobody may insert more."""
    store, made = _filled.pop(name, None) or _fill(fill)
    try:
        yield made  # type: ignore[misc]
    finally:
        _filled[name] = store, made


def _fill(fill: Callable[[EmbeddedStore], Made]) -> tuple[EmbeddedStore, Made]:
    store, _ = _idle.pop() if _idle else _make()
    return store, fill(store)


def empty(store: EmbeddedStore) -> None:
    """Take all rows out. Making the tables anew takes longer than most tests."""
    filled = "SELECT DISTINCT table FROM system.parts WHERE active AND rows AND database = currentDatabase()"
    for table in store.query(filled)["table"].to_pylist():
        if table != "migrations":
            store.database.execute(f"TRUNCATE TABLE {table}")


def _make() -> tuple[EmbeddedStore, list[str]]:
    store = EmbeddedStore()
    store.migrate()
    return store, _tables_of(store)


def _give_back(store: EmbeddedStore, tables: list[str]) -> None:
    """One whose tables a test changed, or that it closed, is nobody's any more."""
    try:
        is_as_made = _tables_of(store) == tables
    except RankscopeError:
        is_as_made = False
    if is_as_made:
        empty(store)
        _idle.append((store, tables))
    else:
        store.close()


def _tables_of(store: EmbeddedStore) -> list[str]:
    asked = "SELECT create_table_query AS made FROM system.tables WHERE database = currentDatabase() ORDER BY name"
    made: list[str] = store.query(asked)["made"].to_pylist()
    return made


def close_idle() -> None:
    for store, _ in (*_idle, *_filled.values()):
        store.close()
    _idle.clear()
    _filled.clear()


@contextmanager
def closed_before_a_folder() -> Iterator[None]:
    """In the block, idle stores are closed before a store opens a folder: the engine holds one folder or memory."""
    opened = EmbeddedStore.__init__

    def open_alone(store: EmbeddedStore, folder: Path | None = None) -> None:
        if folder is not None:
            close_idle()
        opened(store, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedStore, "__init__", open_alone)
        yield


atexit.register(close_idle)  # an engine that is open when the process ends can crash it
os.register_at_fork(before=close_idle)  # a child has none of the engine's threads, but its locks
