"""The memory that the embedded engine keeps between queries."""

import re
from pathlib import Path

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.engine_memory import CACHE_BYTES

LARGE = """
SELECT intDiv(number, 4) AS key, quantileExact(0.5)(number), uniqExact(number) FROM numbers(2000000) GROUP BY key
"""
"""Takes two hundred megabytes in small pieces."""


def anonymous_bytes() -> int:
    """Memory of this process that is no file."""
    found = re.search(r"^Pss_Anon:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])


def test_the_memory_of_a_large_query_is_given_back(embedded: EmbeddedStore) -> None:
    embedded.release_memory()
    before = anonymous_bytes()
    for _ in range(2):
        embedded.query(LARGE)
    grown = anonymous_bytes() - before
    embedded.release_memory()
    assert grown > 50 * 2**20
    assert anonymous_bytes() - before < grown / 2


def test_caches_of_the_engine_are_bounded(embedded: EmbeddedStore) -> None:
    settings = embedded.query("SELECT name, value FROM system.server_settings")
    values = dict(zip(settings["name"].to_pylist(), settings["value"].to_pylist(), strict=True))
    assert {name: int(values[name]) for name in CACHE_BYTES} == CACHE_BYTES
