"""Loads rank files into a store in memory, so that they can be queried without a collector."""

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from telemetry.agent.host import WRONG
from telemetry.agent.tail import RankTail, rank_rows
from telemetry.errors import UnreadableError
from telemetry.evidence.evidence import evidence_rows, kept
from telemetry.evidence.rank_state import heartbeat, heartbeat_rows, is_alive
from telemetry.printable import log
from telemetry.record.reader import find_rank_dirs, no_rank_file
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.tables import owned


def store_from_spool(spool: Path) -> Store:
    """A store with all records that are still on the disk under ``spool``. The caller closes the store.

    A rank that cannot be read is left out, with a line on standard error. It is then a missing rank.

    Raises:
        UsageError: there is no rank file.
        UnreadableError: there are rank files, and none can be read.
    """
    folders = find_rank_dirs(spool)
    if not folders:
        raise no_rank_file(spool)
    store = EmbeddedStore()
    store.migrate()
    loaded = [_load(store, folder) for folder in folders]
    failures = [failure for rank in loaded for failure in rank.failures]
    if all(rank.failures and not rank.num_records for rank in loaded):
        store.close()
        raise UnreadableError(failures[0], hint="see the output of the agent and the ranks")
    for failure in failures:
        log(f"left out: {failure}")
    return store


@dataclass(slots=True, kw_only=True)
class _Loaded:
    """The result of loading one rank."""

    num_records: int = 0
    failures: list[str] = field(default_factory=list)


def _load(store: Store, folder: Path) -> _Loaded:
    """Copy one rank. Records before an unreadable part stay in the store."""
    loaded = _Loaded()
    try:
        tail = RankTail(folder, from_seq=0)
        _insert(store, tail, "ranks", rank_rows([tail.identity]))
    except WRONG as error:
        loaded.failures.append(_failure(folder, error))
        return loaded
    # Each is tried: a rank may have readable spans without a readable state, and a state without spans.
    for load in (_load_records, _load_state, _load_evidence):
        try:
            load(store, tail, loaded)
        except WRONG as error:
            loaded.failures.append(_failure(folder, error))
    return loaded


def _load_records(store: Store, tail: RankTail, loaded: _Loaded) -> None:
    while chunk := tail.read():
        for table, rows in chunk.tables.items():
            _insert(store, tail, table, rows)
        tail.passed(chunk)
        loaded.num_records += chunk.num_records


def _load_state(store: Store, tail: RankTail, _: _Loaded) -> None:
    alive = is_alive(tail.identity, tail.reader.folder)  # before the page, which it may still change
    beat = heartbeat(tail.identity, tail.reader.live(), alive=alive)
    _insert(store, tail, "heartbeats", heartbeat_rows([beat]))


def _load_evidence(store: Store, tail: RankTail, _: _Loaded) -> None:
    """Copy the evidence that an agent has collected about the rank."""
    if found := kept(tail.reader.folder, tail.identity.rank):
        _insert(store, tail, "evidence", evidence_rows(found))


def _failure(folder: Path, error: Exception) -> str:
    return error.message if isinstance(error, UnreadableError) else f"{folder}: {error}"


def _insert(store: Store, tail: RankTail, table: str, rows: pa.Table) -> None:
    store.insert(table, owned(rows, tail.identity.run_id, tail.identity.attempt))
