"""OTLP spans with a rank are converted to rank spans as they arrive, once. Detectors read the rank spans."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from diagnose.findings import Kind
from diagnose.pipeline import diagnose_run
from telemetry.collector.otlp.rank_spans import MAX_WAITING, RankSpan, StepFinder, in_order, rank_spans_of
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import LAST_STEP, Ranks, Spans
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.telemetry.made_formats import RANKS, SLOW_RANK, STEPS, known_run, otlp_requests
from tests.telemetry.made_rows import insert, numbered_spans
from tests.telemetry.served import collecting

RUN = "megatron-lm-made"
SPANS_A_STEP = 6
STEPS_A_REQUEST = 4


def request_of(name: str = "step", *, start: int = 100, end: int = 200, **attributes: Any) -> ExportTraceServiceRequest:
    """One span. Attributes with ``_`` are written with ``.``."""
    told = [
        {"key": key.replace("__", "."), "value": {"intValue": str(value)} if isinstance(value, int) else value}
        for key, value in attributes.items()
    ]
    span = {"name": name, "startTimeUnixNano": str(start), "endTimeUnixNano": str(end), "attributes": told}
    return ParseDict({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}, ExportTraceServiceRequest())


def text(value: str) -> dict[str, str]:
    return {"stringValue": value}


def converted(name: str = "step", **told: Any) -> RankSpan:
    (span,) = rank_spans_of(request_of(name, **told))
    return span


# Which spans belong to a rank.


@each_case("rank", ["rank", "process__rank", "dl__rank", "rankscope__rank"])
@each_case("size", ["world_size", "process__world_size", "dl__world_size"])
def test_rank_world_size_and_step_are_read_from_usual_attribute_names(rank: str, size: str) -> None:
    span = converted("train_step", **{rank: 3, size: 8}, step=7)
    assert (span.source.rank, span.source.topology, span.stage, span.step) == (3, Topology(dp=8), Stage.STEP, 7)
    assert span.source.run_id == "otlp"


def test_text_attributes_are_read_and_the_mesh_is_given_or_derived_from_degrees() -> None:
    span = converted("forward", rank=text("2"), world_size=text("8"), step=1, rankscope__mesh=text("pp=2,dp=4"))
    assert str(span.source.topology) == "pp=2,dp=4"
    span = converted(
        "forward", dl__rank=2, dl__world_size=8, dl__pipeline_parallel__size=2, dl__tensor_parallel__size=2
    )
    assert (str(span.source.topology), span.step) == ("pp=2,dp=2,tp=2", None)


def test_forward_span_with_tensor_parallel_collectives_gets_the_forward_backward_stage() -> None:
    of_megatron = {"dl__rank": 0, "dl__world_size": 4}
    assert converted("megatron.microbatch.forward", **of_megatron).stage is Stage.FORWARD_COMPUTE
    shared = converted("megatron.microbatch.forward", **of_megatron, dl__tensor_parallel__size=2)
    assert shared.stage is Stage.FORWARD_BACKWARD


@each_case(
    ("name", "stage"),
    [
        ("megatron.train.iteration", Stage.STEP),
        ("megatron.train_step", Stage.STEP),
        ("megatron.train.iteration.forward_backward", Stage.FORWARD_BACKWARD),
        ("megatron.train.iteration.optimizer", Stage.OPTIMIZER),
        ("megatron.optimizer_step", Stage.OPTIMIZER),
        ("megatron.checkpoint.exposed_save", Stage.CHECKPOINT_WRITE),
        ("megatron.train.gc_collect", Stage.GC),
    ],
)
def test_old_and_new_span_names_of_megatron_are_mapped_to_stages(name: str, stage: Stage) -> None:
    assert converted(name, dl__rank=0, dl__world_size=4, megatron__iteration=7).stage is stage


@each_case(
    "told",
    [
        {},
        {"rank": 1},
        {"rank": 4, "world_size": 4},
        {"rank": text("-1"), "world_size": 4},
        {"rank": text("one"), "world_size": 4},
        {"rank": 0, "world_size": 2**40},
        {"rank": 0, "world_size": 4, "rankscope__mesh": text("dp=3")},
        {"rank": 0, "world_size": 4, "start": 300},
        {"rank": 0, "world_size": 4, "step": 2**40},
        {"rank": 0, "world_size": 4, "rankscope__stage": text("no such stage")},
    ],
)
def test_span_without_a_valid_rank_or_with_invalid_values_is_left_out(told: dict[str, Any]) -> None:
    assert rank_spans_of(request_of("step", **{"step": 1, **told})) == []


# Steps.


def test_a_span_gets_the_step_that_contains_it_and_others_are_left_out() -> None:
    rank = {"rank": 0, "world_size": 1}
    before = converted("forward", start=10, end=90, **rank)
    inside = converted("forward", start=110, end=150, **rank)
    after = converted("backward", start=210, end=290, **rank)
    finder = StepFinder()
    assert finder.take(in_order([after, inside, before])) == []
    steps = [
        converted("step", start=100, end=200, step=4, **rank),
        converted("step", start=200, end=300, step=5, **rank),
    ]
    found = finder.take(in_order(reversed(steps)))
    assert [(span.stage, span.step) for span in found] == [
        (Stage.FORWARD_COMPUTE, 4),
        (Stage.STEP, 4),
        (Stage.BACKWARD_COMPUTE, 5),
        (Stage.STEP, 5),
    ]
    assert finder.waiting == ()


def test_the_number_of_waiting_spans_is_limited() -> None:
    waiting = converted("forward", rank=0, world_size=1)
    finder = StepFinder()
    finder.take([waiting] * (MAX_WAITING + 10))
    assert len(finder.waiting) == MAX_WAITING


# Over HTTP.


@pytest.fixture
def served(embedded: EmbeddedStore) -> Iterator[httpx.Client]:
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        yield http


def post(http: httpx.Client, request: dict[str, Any]) -> None:
    answer = http.post("/v1/traces", content=json.dumps(request), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()) == (200, {}), answer.text


def stored(store: EmbeddedStore, run: str = RUN) -> list[dict[str, Any]]:
    query = Spans(run_id=run, attempt=0, first_step=0, last_step=LAST_STEP)
    return list(StoreReader(store).read(query).to_pylist())


def test_slow_rank_of_a_megatron_job_is_found_from_its_otlp_spans(
    embedded: EmbeddedStore, served: httpx.Client
) -> None:
    spans = known_run(slow=1.5)
    by_rank = [list(otlp_requests(spans, rank)) for rank in range(RANKS)]
    for first in range(0, STEPS, STEPS_A_REQUEST):
        for requests in by_rank:
            sent = requests[first : first + STEPS_A_REQUEST]
            post(served, {"resourceSpans": [spans for request in sent for spans in request["resourceSpans"]]})
    assert len(stored(embedded)) == RANKS * STEPS * SPANS_A_STEP
    assert embedded.query("SELECT count() AS n FROM otel_spans")["n"].to_pylist() == [RANKS * STEPS * SPANS_A_STEP]
    reader = StoreReader(embedded)
    ranks = reader.read(Ranks(run_id=RUN, attempt=0)).to_pylist()
    assert [(row["rank"], row["host"]) for row in ranks] == [(rank, f"gpu-{rank // 2}") for rank in range(RANKS)]
    (finding,) = (found for found in diagnose_run(reader, RUN, 0).findings if found.kind is Kind.COMPUTE_STRAGGLER)
    assert list(finding.ranks) == [SLOW_RANK]


def test_a_request_that_is_sent_again_is_stored_once_also_by_the_next_collector(embedded: EmbeddedStore) -> None:
    first, second, *_ = otlp_requests(known_run(), 0)
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        for request in (first, first):
            post(http, request)
    assert len(stored(embedded)) == SPANS_A_STEP
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        post(http, second)
        post(http, second)
    assert len(stored(embedded)) == 2 * SPANS_A_STEP


def test_spans_wait_in_the_collector_for_the_end_of_their_step(embedded: EmbeddedStore, served: httpx.Client) -> None:
    request = next(iter(otlp_requests(known_run(), 0)))
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in spans:
        assert stored(embedded) == []
        request["resourceSpans"][0]["scopeSpans"][0]["spans"] = [span]
        post(served, request)
    assert {row["step"] for row in stored(embedded)} == {3}
    assert len(stored(embedded)) == SPANS_A_STEP


def test_otlp_spans_add_no_rank_spans_to_a_run_that_its_ranks_recorded(
    embedded: EmbeddedStore, served: httpx.Client
) -> None:
    insert(embedded, "spans", numbered_spans(0, 3), run_id=RUN)
    post(served, next(iter(otlp_requests(known_run(), 0))))
    assert len(stored(embedded)) == 3
    assert embedded.query("SELECT count() AS n FROM otel_spans")["n"].to_pylist() == [SPANS_A_STEP]
