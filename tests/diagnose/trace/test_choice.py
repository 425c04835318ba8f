"""Which steps and ranks become a trace, and which are too many."""

import pytest

from diagnose.findings import StepWindow
from diagnose.trace.choice import choose
from telemetry.errors import UnknownRunError, UsageError
from telemetry.stores.interface import Store, StoreReader


def test_a_very_large_run_gives_fewer_of_its_newest_steps(store: Store) -> None:
    reader = StoreReader(store)
    all_steps = choose(reader, "single", 0)
    a_third = choose(reader, "single", 0, max_spans=all_steps.num_spans // 3)
    assert 9 <= a_third.first_step <= 10
    assert a_third.num_spans <= all_steps.num_spans // 3


def test_a_window_that_is_too_large_is_refused_with_one_that_fits(store: Store) -> None:
    reader = StoreReader(store)
    window = StepWindow(first_step=2, last_step=11)
    limit = choose(reader, "single", 0, window=window).num_spans // 2
    with pytest.raises(UsageError) as raised:
        choose(reader, "single", 0, window=window, max_spans=limit)
    assert "--last-step 6" in str(raised.value)
    fits = choose(reader, "single", 0, window=StepWindow(first_step=2, last_step=6), max_spans=limit)
    assert fits.num_spans <= limit
    with pytest.raises(UsageError, match="ranks fit in one step"):
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
def test_what_is_not_there_is_refused_with_what_is(store: Store, chosen: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as raised:
        choose(StoreReader(store), "single", 0, **chosen)
    assert words in str(raised.value)


def test_a_run_whose_ranks_never_reported_is_refused(store: Store) -> None:
    with pytest.raises(UnknownRunError):
        choose(StoreReader(store), "nobody", 0)
