"""The choice of steps and ranks for a trace, and its limits."""

from collections.abc import Iterator

import pytest

from diagnose.findings import StepWindow
from diagnose.trace.choice import choose
from telemetry.errors import UnknownRunError, UsageError
from telemetry.stores.interface import Store, StoreReader
from tests.diagnose.trace.stored_runs import GRID, put
from tests.memory_store import memory_store


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with memory_store() as made_store:
        put(made_store, "single", topology=GRID, gpus_per_host=8)
        yield made_store


def test_trace_of_a_very_large_run_has_only_its_newest_steps(store: Store) -> None:
    reader = StoreReader(store)
    all_steps = choose(reader, "single", 0)
    a_third = choose(reader, "single", 0, max_spans=all_steps.num_spans // 3)
    assert 9 <= a_third.first_step <= 10
    assert a_third.num_spans <= all_steps.num_spans // 3


def test_too_large_window_is_rejected_with_a_window_that_fits(store: Store) -> None:
    reader = StoreReader(store)
    window = StepWindow(first_step=2, last_step=11)
    limit = choose(reader, "single", 0, window=window).num_spans // 2
    with pytest.raises(UsageError) as raised:
        choose(reader, "single", 0, window=window, max_spans=limit)
    assert "--last-step 6" in str(raised.value)
    fits = choose(reader, "single", 0, window=StepWindow(first_step=2, last_step=6), max_spans=limit)
    assert fits.num_spans <= limit
    with pytest.raises(UsageError, match="ranks of one step fit"):
        choose(reader, "single", 0, max_spans=100)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"ranks": "8"}, "ranks of this run are 0 to 7"),
        ({"ranks": "x"}, "0-7,12"),
        ({"hosts": ["nowhere"]}, "its hosts: gpu-000"),
        ({"window": StepWindow(first_step=50, last_step=60)}, "steps 0 to 11"),
    ],
)
def test_unknown_rank_host_or_step_is_rejected_with_the_valid_ones(
    store: Store, chosen: dict[str, object], words: str
) -> None:
    with pytest.raises(UsageError) as raised:
        choose(StoreReader(store), "single", 0, **chosen)
    assert words in str(raised.value)


def test_run_without_ranks_is_rejected(store: Store) -> None:
    with pytest.raises(UnknownRunError):
        choose(StoreReader(store), "nobody", 0)
