"""A store in memory with runs to export."""

from collections.abc import Iterator

import pytest

from telemetry.stores.embedded import EmbeddedStore
from tests.diagnose.trace.stored_runs import APART_S, GRID, WIDE, estimate, put, refuse
from tests.memory_store import memory_store


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    """``single``: one host. ``apart``: hosts whose clocks lie apart and drift, estimated; ``blind``: refused;
    ``unwatched``: not stored."""
    with memory_store() as made_store:
        put(made_store, "single", topology=GRID, gpus_per_host=8, checkpoint_every=5)
        put(made_store, "chunks", topology=WIDE, num_chunks=2, num_microbatches=3, gpus_per_host=12)
        for name in ("apart", "blind", "unwatched"):
            put(made_store, name, topology=GRID, gpus_per_host=2, clock_offset_ms=1000 * APART_S, clock_drift_ppm=20)
        estimate(made_store, "apart")
        refuse(made_store, "blind", last_step=11)
        yield made_store
