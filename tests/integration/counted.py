"""Counts of the records that ranks wrote and of the rows that a store holds."""

import json
from pathlib import Path

from telemetry.record.reader import RankReader, find_rank_dirs
from tests.forkserver import output_of

COUNT = """
import json, sys
from telemetry.stores.open import open_store
store = open_store(sys.argv[1])
rows = store.query(
    "SELECT rank, count() AS stored, uniqExact(seq) AS different, min(seq) AS first, max(seq) AS last FROM"
    " (SELECT rank, seq FROM spans UNION ALL SELECT rank, seq FROM samples) GROUP BY rank ORDER BY rank"
)
print(json.dumps(rows.to_pylist()))
store.close()
"""


def rows_stored(store_url: str) -> list[dict[str, int]]:
    """Rows by rank, counted in the store by a separate process. Spans and samples are numbered together."""
    rows: list[dict[str, int]] = json.loads(output_of("-c", COUNT, store_url))
    return rows


def records_written(spool: Path) -> list[int]:
    """Number of records by rank, counted in the rank files."""
    readers = [RankReader(folder) for folder in find_rank_dirs(spool)]
    return [reader.end_seq(reader.acked()) for reader in readers]
