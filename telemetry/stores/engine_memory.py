"""Limits the memory that the embedded engine keeps between queries.

caches      hold what was read from parts. Their usual limits are gigabytes, for a dedicated server.
allocator   keeps freed pages until the next allocation. An idle engine would keep the pages of its largest query.
"""

from contextlib import suppress

import pyarrow as pa
from chdb import ChdbError
from chdb.session import Session

from telemetry.process.process_memory import trim

MIB = 2**20
CACHE_BYTES = {
    "mark_cache_size": 64 * MIB,
    "primary_index_cache_size": 64 * MIB,
    "index_mark_cache_size": 16 * MIB,
    "query_condition_cache_size": 16 * MIB,
    "compiled_expression_cache_size": 32 * MIB,
}
"""Settings of the engine."""


def with_small_caches(path: str) -> str:
    """The address under which the first session of a process starts the engine."""
    return f"{path}?{'&'.join(f'{name}={size}' for name, size in CACHE_BYTES.items())}"


def release_memory(session: Session) -> None:
    """Give freed pages back to the system."""
    with suppress(ChdbError):  # an engine that was built with another allocator
        session.query("SYSTEM JEMALLOC PURGE")
    pa.default_memory_pool().release_unused()
    trim()
