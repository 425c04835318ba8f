"""Rank files straight into a store in memory: questions can be asked with no collector alive."""

import sys
from pathlib import Path

import pyarrow as pa

from telemetry.agent.heartbeat import heartbeat, heartbeat_rows, is_alive
from telemetry.agent.tail import RankTail, rank_rows
from telemetry.errors import UnreadableError, UsageError
from telemetry.record.reader import find_rank_dirs
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store


def store_from_spool(spool: Path) -> Store:
    """All that is still on the disk under ``spool``. The caller closes the store.

    A rank that cannot be read is left out, with a line on standard error: it is missing, which is evidence too.

    Raises:
        UsageError: no rank file there.
        UnreadableError: there are some, and none can be read.
    """
    folders = find_rank_dirs(spool)
    if not folders:
        raise UsageError(f"no rank file under {spool}", hint="name the folder that ranks write into: --spool DIR")
    store = EmbeddedStore()
    store.migrate()
    failures = [error for folder in folders if (error := _load(store, folder)) is not None]
    if len(failures) == len(folders):
        store.close()
        raise failures[0]
    for failure in failures:
        print(f"left out: {failure.message}", file=sys.stderr)
    return store


def _load(store: Store, folder: Path) -> UnreadableError | None:
    """Copy one rank; what came before the unreadable part stays."""
    try:
        tail = RankTail(folder, from_seq=0)
        _insert(store, tail, "ranks", rank_rows([tail.identity]))
        _load_state(store, tail)
        while chunk := tail.read():
            for table, rows in chunk.tables.items():
                _insert(store, tail, table, rows)
            tail.passed(chunk)
    except UnreadableError as error:
        return error
    return None


def _load_state(store: Store, tail: RankTail) -> None:
    beat = heartbeat(tail.identity, tail.reader.live(), alive=is_alive(tail.identity))
    _insert(store, tail, "heartbeats", heartbeat_rows([beat]))


def _insert(store: Store, tail: RankTail, table: str, rows: pa.Table) -> None:
    identity = tail.identity
    run_id = pa.repeat(identity.run_id, rows.num_rows)
    attempt = pa.repeat(pa.scalar(identity.attempt, pa.uint32()), rows.num_rows)
    store.insert(table, rows.append_column("run_id", run_id).append_column("attempt", attempt))
