"""Inserts and merges into an embedded store while its small disk becomes full. Run it with ``python -m`` as root.

Prints the stored rows, the acknowledged rows and the number of writes during which the disk became full, as JSON.
"""

import json
import os
import random
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.embedded import EmbeddedStore
from tests.integration.chaos.small_disk import SmallDisk, small_disk

ROWS = 40
ROOM_BYTES = 3 * 2**20
"""Enough space for the engine to start a write."""
MAX_DELAY_S = 0.03
MERGE = "OPTIMIZE TABLE samples FINAL"


def rows_from(seq: int) -> pa.Table:
    numbers = np.arange(seq, seq + ROWS, dtype=np.uint64)
    zeros = np.zeros(ROWS, np.uint32)
    return pa.table(
        {
            "run_id": ["filled"] * ROWS,
            "attempt": zeros,
            "rank": zeros,
            "seq": numbers,
            "at_ns": numbers.astype(np.int64),
            "metric": ["loss"] * ROWS,
            "value": numbers.astype(np.float64),
        }
    )


def next_seq(store: EmbeddedStore) -> int:
    """The next record number, read as the ledger of the collector does, after all registered inserts have ended."""
    store.settle()
    found = store.query("SELECT count() AS n, max(seq) + 1 AS next FROM samples").to_pylist()[0]
    return int(found["next"]) if found["n"] else 0


def write_while_it_fills(store: EmbeddedStore, disk: SmallDisk, draw: random.Random, seq: int) -> bool:
    """Insert once, about every fourth time after a merge. Return whether the insert was acknowledged."""
    free = os.statvfs(disk.folder)
    with (disk.folder / "other").open("wb") as other:
        os.posix_fallocate(other.fileno(), 0, free.f_bavail * free.f_frsize - ROOM_BYTES)
    filler = threading.Timer(draw.uniform(0.0, MAX_DELAY_S), disk.fill)
    filler.start()
    try:
        if draw.random() < 0.25:
            with suppress(UnreachableError):
                store.database.execute(MERGE)
        store.insert("samples", rows_from(seq))
        return True
    except UnreachableError:
        return False
    finally:
        filler.join()
        disk.free()
        (disk.folder / "other").unlink()


def main(folder: Path, rounds: int, seed: int) -> None:
    draw = random.Random(seed)
    with small_disk(folder, size_mib=64) as disk:
        store = EmbeddedStore(folder / "chdb")
        store.migrate()
        seq = refused = 0
        for _ in range(rounds):
            if write_while_it_fills(store, disk, draw, seq):
                seq += ROWS
            else:
                refused += 1
                stored = next_seq(store)
                assert stored in (seq, seq + ROWS), (stored, seq)
                seq = stored
        assert next_seq(store) == seq
        whole = store.query("SELECT count() AS rows, uniqExact(seq) AS numbers, sum(value) AS total FROM samples")
        store.close()
        aside = len(list(folder.glob("chdb/store/*/*/detached/torn_*")))
        print(json.dumps({**whole.to_pylist()[0], "told": seq, "refused": refused, "aside": aside}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
