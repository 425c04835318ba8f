"""The stored history of a run with many restarts."""

from collections.abc import Callable

from diagnose.goodput.records import RunHistory
from diagnose.goodput.stored import load_history
from telemetry.stages import Stage
from telemetry.stores.interface import Query, StoreReader
from telemetry.tables import ENDED_FAILED
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made

NUM_ATTEMPTS, NUM_STEPS = 4, 4
LENGTH_NS, PERIOD_NS = 10, 1000


class CountingReader(StoreReader):
    """Records every query."""

    queries: list[Query]

    def read(self, query: Query):  # type: ignore[no-untyped-def]
        self.queries.append(query)
        return super().read(query)


def history(num_attempts: int) -> tuple[RunHistory, int]:
    """The history of a run whose attempts fail in step 4, and the number of queries."""
    with memory_store() as store:
        for attempt in range(num_attempts):
            begin_ns = 1 + attempt * PERIOD_NS

            def put(table: str, *rows: dict[str, object], attempt: int = attempt) -> None:
                insert(store, table, made(table, list(rows)), run_id="run", attempt=attempt)

            put_attempt(put, begin_ns)
        reader = CountingReader(store)
        reader.queries = []
        return load_history(reader, "run"), len(reader.queries)


def put_attempt(put: Callable[..., None], begin_ns: int) -> None:
    put("ranks", {"rank": 0, "started_ns": begin_ns})
    stages = (Stage.STEP, Stage.CHECKPOINT_SNAPSHOT)
    spans = [
        {"rank": 0, "stage": int(stage), "step": step, "start_ns": begin_ns + 20 * step, "duration_ns": LENGTH_NS}
        for step in range(NUM_STEPS)
        for stage in stages
    ]
    interrupted = {"rank": 0, "stage": int(Stage.STEP), "step": 4, "start_ns": begin_ns + 80, "duration_ns": 500}
    put("spans", *({**span, "seq": seq} for seq, span in enumerate([*spans, interrupted])))
    put("evidence", {"rank": 0, "kind": "state", "at_ns": begin_ns + 300, "body": "{}"})
    put("heartbeats", {"rank": 0, "at_ns": begin_ns + 600, "beat_ns": begin_ns + 600, "step": 4, "ended": ENDED_FAILED})
    put(
        "marks",
        {"rank": 0, "seq": 100, "step": 2, "at_ns": begin_ns + 50, "name": "checkpoint"},
        {"rank": 0, "seq": 101, "step": 1, "at_ns": begin_ns + 30, "name": "checkpoint"},
        {"rank": 0, "seq": 102, "step": 0, "at_ns": begin_ns + 5, "name": "step-interrupted"},
        {"rank": 0, "seq": 103, "step": 4, "at_ns": begin_ns + 590, "name": "step-interrupted"},
        {"rank": 0, "seq": 104, "step": 4, "at_ns": begin_ns + 580, "name": "step-interrupted"},
    )


def test_number_of_queries_does_not_depend_on_the_number_of_attempts() -> None:
    _, few = history(2)
    found, many = history(NUM_ATTEMPTS)
    assert many == few
    assert [facts.attempt for facts in found.attempts] == list(range(NUM_ATTEMPTS))


def test_every_attempt_has_its_own_steps_and_marks() -> None:
    """The span of the step in which the rank died after a stall is not among them."""
    found, _ = history(3)
    for facts in found.attempts:
        begin_ns = 1 + facts.attempt * PERIOD_NS
        for times in (facts.steps, facts.snapshots):
            assert times.number.tolist() == list(range(NUM_STEPS))
            assert times.start_ns.tolist() == [begin_ns + 20 * step for step in range(NUM_STEPS)]
            assert times.duration_ns.tolist() == [LENGTH_NS] * NUM_STEPS
        assert (facts.saved_ns, facts.interrupted_ns) == (begin_ns + 50, begin_ns + 580)
