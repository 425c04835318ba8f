"""A store in memory with a made run."""

import time
from collections.abc import Iterator

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import filled_store, memory_store
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        yield store


@pytest.fixture(scope="module")
def run(store: EmbeddedStore) -> SyntheticRun:
    """Eight ranks, rank 5 slow, forty steps."""
    return store_made(store)


def store_made(store: EmbeddedStore) -> SyntheticRun:
    run = SyntheticRun(run_id="made")
    run.introduce(store)
    run.advance(store, 40)
    run.beat(store, at_ns=run.now_ns, ended=True)
    return run


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    """Reads of a store that has only ``run``. All files share it with its answers, so it must not be changed."""
    with filled_store("made", made_reads) as reads:
        yield reads


def made_reads(store: EmbeddedStore) -> Reads:
    store_made(store)
    return fixed_reads(store)


@pytest.fixture(scope="module")
def reads_of_store(store: EmbeddedStore, run: SyntheticRun) -> Reads:
    """Reads of ``store``. They keep answers, as those of a server do. So a test that stores a run makes its own."""
    return fixed_reads(store)


def fixed_reads(store: EmbeddedStore) -> Reads:
    """Reads with a fixed clock, so that no list is queried again after a second."""
    now_s = time.time()
    return Reads(StoreReader(store), wall_s=lambda: now_s)
