"""The choice of a run and an attempt, and the error if the store does not have it."""

from collections.abc import Iterator

import pytest

from diagnose.model.load import newest_attempt
from telemetry.errors import UnknownRunError
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.ablation_runs import put_run


@pytest.fixture(scope="module")
def reader() -> Iterator[StoreReader]:
    with memory_store() as store:
        put_run(store, "gpt", {}, num_steps=2)
        yield StoreReader(store)


@each_case(
    ("run_id", "attempt", "said"),
    [
        ("llama", None, "no run 'llama' is stored"),
        ("gpt", 7, "no run 'gpt' with attempt 7 is stored"),
        (None, 7, "no run with attempt 7 is stored"),
    ],
)
def test_error_names_the_run_or_attempt_that_is_not_stored(
    run_id: str | None, attempt: int | None, said: str, reader: StoreReader
) -> None:
    with pytest.raises(UnknownRunError) as error:
        newest_attempt(reader, run_id, attempt)
    assert str(error.value).startswith(said)
    assert "gpt/0" in error.value.hint
