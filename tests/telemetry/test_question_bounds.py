"""A query that is too expensive is refused. The next query is answered."""

import pytest

from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.stores.queries import Runs, Spans
from tests.telemetry.made_rows import insert, made, numbered_spans
from tests.telemetry.served import collecting

ENDLESS = "SELECT sum(sipHash64(number)) AS n FROM numbers(1000000000000)"
ALL = Spans(run_id="run", attempt=0, first_step=0, last_step=100)


def test_query_that_takes_too_long_is_stopped(store: Store) -> None:
    with pytest.raises(UsageError, match="takes too long"):
        store.query(ENDLESS, max_seconds=0.5)
    assert store.query("SELECT 1 AS n", max_seconds=0.5)["n"].to_pylist() == [1]


def test_query_with_invalid_parameters_raises_a_usage_error(store: Store) -> None:
    with pytest.raises(UsageError, match="is invalid with these parameters"):
        store.query("SELECT intDiv(1, %(by)s) AS n", {"by": 0})


def test_answer_that_is_too_large_is_refused_and_a_smaller_answer_is_sent(embedded: EmbeddedStore) -> None:
    insert(embedded, "spans", numbered_spans(0, 500))
    insert(embedded, "ranks", made("ranks", [{}]))
    with collecting(embedded, max_answer_bytes=10_000) as client:
        with pytest.raises(UsageError, match=r"RANKSCOPE_MAX_ANSWER_BYTES"):
            client.read(ALL)
        assert client.read(Runs()).num_rows == 1


def test_query_with_a_parameter_list_that_is_too_long_is_refused(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client, pytest.raises(UsageError, match="more than 131072 bytes"):
        client.read(Spans(run_id="run", attempt=0, first_step=0, last_step=1, ranks=tuple(range(100_000))))
