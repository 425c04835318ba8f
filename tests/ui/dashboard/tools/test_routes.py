"""The JSON routes: their document, their answers, their limits, and who may call them."""

import json
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from typer.testing import CliRunner

from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.ui.dashboard.tools.stored_runs import CALLS, stored_runs
from tests.ui.served_dashboard import serving_app
from tests.ui.switchable import Switchable
from ui.cli.main import app
from ui.dashboard.app import mount_dashboard
from ui.dashboard.tools import calling, operations, routes
from ui.dashboard.tools.operations import BY_NAME, OPERATIONS, check


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with stored_runs() as store:
        yield store


@pytest.fixture(scope="module")
def address(store: EmbeddedStore) -> Iterator[str]:
    """Address of a collector with its dashboard."""
    with serving_app(collector(store, CollectorSettings())) as address:
        yield address.rstrip("/")


def collector(store: EmbeddedStore, settings: CollectorSettings) -> FastAPI:
    server = create_app(store, settings)
    mount_dashboard(server, StoreReader(store))
    return server


LOADED_S = 60.0
"""Busy machines answer slowly."""


def get(address: str, name: str, **asked: object) -> httpx.Response:
    return httpx.get(f"{address}/api/v1/{name}", params=asked, verify=False, timeout=LOADED_S)  # type: ignore[arg-type]


def test_openapi_document_is_valid_and_describes_every_route_parameter_and_field(address: str) -> None:
    document = get(address, "openapi.json").json()
    validator = import_module("openapi_spec_validator")  # takes time, and each worker collects this file
    validator.OpenAPIV31SpecValidator(document).validate()
    assert document["servers"] == [{"url": "/api/v1"}]
    assert set(document["paths"]) == {f"/{operation.name}" for operation in OPERATIONS}
    for operation in OPERATIONS:
        (method, described), *others = document["paths"][f"/{operation.name}"].items()
        assert (method, others) == ("get", [])
        assert {parameter["name"] for parameter in described["parameters"]} == set(operation.parameters.model_fields)
        assert all(parameter["description"] for parameter in described["parameters"])
        reference = described["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        assert set(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]) >= {"schema"}
        assert operations.DATA_NOTE in described["description"]


@each_case("name", BY_NAME)
def test_answer_of_each_route_has_exactly_the_documented_fields(address: str, name: str) -> None:
    answer = get(address, name, **CALLS[name])
    assert answer.status_code == 200, answer.text
    BY_NAME[name].result.model_validate(answer.json(), extra="forbid")
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs", ["runs"]),
        ("findings", ["diagnose", "made"]),
        ("hang", ["diagnose", "hang", "stuck"]),
        ("goodput", ["goodput", "made"]),
        ("compare", ["compare", "healthy", "made"]),
    ],
)
def test_route_returns_the_same_values_as_the_command(address: str, name: str, words: list[str]) -> None:
    printed = json.loads(CliRunner().invoke(app, [*words, "--json", "--store", address]).stdout)
    found = get(address, name, **CALLS[name]).json()
    assert {field: found[field] for field in printed} == printed
    assert set(found) - set(printed) <= {"num_findings", "num_incidents", "num_ranks"}


def test_the_faulty_rank_is_in_the_findings_the_verdict_the_heat_map_and_the_comparison(address: str) -> None:
    assert get(address, "findings", run="made").json()["findings"][0]["ranks"] == [5]
    assert get(address, "findings", run="healthy").json()["findings"] == []
    assert get(address, "hang", run="stuck").json()["findings"][0]["ranks"] == [5]
    assert get(address, "hang", run="healthy").json()["findings"] == []
    heat = get(address, "heatmap", run="made", first_step=10, last_step=12, ranks="4-6").json()
    assert (heat["steps"], heat["ranks"]) == ([10, 11, 12], [4, 5, 6])
    assert all(column[1] > 1.3 > max(column[0], column[2]) for column in heat["values"])
    fitting = get(address, "heatmap", run="made", max_cells=50).json()
    assert (fitting["steps"], len(fitting["ranks"])) == ([*range(34, 40)], 8)
    assert [rank["rank"] for rank in get(address, "compare", a="healthy", b="made").json()["ranks"]] == [5]


def test_the_timeline_has_the_longest_spans_within_their_steps(address: str) -> None:
    whole = get(address, "timeline", run="made", step=20, ranks="0,5", limit=10_000).json()
    assert len(whole["spans"]) == whole["num_spans"] > 50
    assert {span["rank"] for span in whole["spans"]} == {0, 5}
    step_of = {rank["rank"]: rank for rank in whole["ranks"]}
    for span in whole["spans"]:
        step = step_of[span["rank"]]
        assert step["step_start_ns"] <= span["start_ns"]
        assert span["start_ns"] + span["duration_ns"] <= step["step_start_ns"] + step["step_ns"]
    shortest = sorted(span["duration_ns"] for span in whole["spans"])[-7]
    longest = get(address, "timeline", run="made", step=20, ranks="0,5", limit=7).json()
    assert longest["num_spans"] == whole["num_spans"]
    assert [span["duration_ns"] >= shortest for span in longest["spans"]] == [True] * 7


@each_case(
    ("name", "asked", "status", "words"),
    [
        ("findings", {"run": "nobody"}, 404, "no run is called nobody"),
        ("run", {"run": "made", "attempt": 7}, 404, "has no attempt 7"),
        ("compare", {"a": "nobody", "b": "made"}, 404, "no run 'nobody'"),
        ("nothing", {}, 404, "no such route"),
        ("runs", {"limit": "0"}, 400, "limit: must be greater than or equal to 1"),
        ("runs", {"limit": "many"}, 400, "limit: must be a whole number"),
        ("runs", {"stpe": "1"}, 400, "runs has no parameter stpe"),
        ("runs", {"\x1b[2J": "1"}, 400, "has no parameter \\x1b[2J"),
        ("steps", {"first_step": 9, "last_step": 3}, 400, "first_step 9 is larger than last_step 3"),
        ("findings", {"run": "made", "first_step": 900}, 400, "step"),
        ("heatmap", {"run": "made", "stage": "<b>"}, 400, "stage: must be a stage: step, data-load"),
        ("heatmap", {"run": "made", "stage": "gc"}, 400, "this run has no stage gc"),
        ("heatmap", {"run": "made", "metric": "wait"}, 400, "not defined for forward-compute"),
        ("heatmap", {"run": "made", "ranks": "5-x"}, 400, "'5-x' is not a list of ranks"),
        ("heatmap", {"run": "made", "ranks": "0-99"}, 400, "ranks of this run are 0 to 7"),
        ("heatmap", {"run": "made", "first_step": 900}, 400, "are not stored"),
        ("heatmap", {"run": "made", "first_step": 0, "max_cells": 100}, 400, "choose at most 12 of steps 0 to 39"),
        ("heatmap", {"run": "made", "max_cells": 7}, 400, "choose fewer ranks, or raise max_cells"),
        ("timeline", {"run": "made", "step": 999}, 400, "step 999 is not stored"),
        ("timeline", {"run": "made", "step": 2**40}, 400, "step: must be less than or equal to"),
        ("compare", {"a": "made"}, 400, "b: is missing"),
        ("compare", {"a": "made/x", "b": "made"}, 400, "'x' in 'made/x'"),
        ("compare", {"a": "made", "b": "made"}, 400, "same"),
        ("compare", {"a": "made", "b": "made", "least_change": "nan"}, 400, "least_change"),
    ],
)
def test_invalid_request_returns_an_error_and_a_hint(
    address: str, name: str, asked: dict[str, Any], status: int, words: str
) -> None:
    answer = get(address, name, **asked)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "hint"}
    assert words.lower() in " ".join(answer.json().values()).lower()
    assert "Traceback" not in answer.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(operation=st.sampled_from(OPERATIONS), data=st.data())
def test_any_parameter_values_are_accepted_or_rejected_with_one_printable_line(
    operation: Any, data: st.DataObject
) -> None:
    names = st.sampled_from([*operation.parameters.model_fields]) | st.text(max_size=5)
    values = data.draw(st.dictionaries(names, VALUES, max_size=4))
    try:
        check(operation, values)
    except UsageError as error:
        refused = error
    else:
        return
    assert refused.message
    assert refused.message.isprintable()
    assert refused.hint.startswith(f"parameters of {operation.name}: ")


def test_answer_above_the_size_limit_is_rejected_with_a_hint(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_ANSWER_BYTES", 500)
    answer = get(address, "steps", run="made")
    assert (answer.status_code, answer.json()["hint"]) == (400, "choose fewer steps or ranks, or a smaller limit")
    assert get(address, "steps", run="made", limit=2).status_code == 200


def test_too_many_waiting_calls_return_status_429(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "MAX_WAITING", 0)
    answer = get(address, "runs")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_unreachable_store_returns_status_503_and_a_defect_returns_status_500(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, server = Switchable(StoreReader(store)), FastAPI()
    failing = replace(BY_NAME["steps"], answer=lambda *_: 1 / 0)
    monkeypatch.setattr(routes, "OPERATIONS", (BY_NAME["runs"], failing))
    mount_dashboard(server, reader)
    with serving_app(server) as address:
        reader.reachable = False
        assert get(address.rstrip("/"), "runs").status_code == 503
        answer = get(address.rstrip("/"), "steps")
    assert (answer.status_code, answer.json()["error"]) == (500, "steps failed: ZeroDivisionError")
    assert "ZeroDivisionError" in caplog.text


def test_routes_require_the_same_tokens_as_the_pages(store: EmbeddedStore) -> None:
    tokens = {name: SecretStr(name) for name in ("token", "read_token", "write_token")}
    with serving_app(collector(store, CollectorSettings(**tokens))) as address:  # type: ignore[arg-type]
        statuses = {}
        for token in ("", "wrong", *tokens):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            for path in ("", "api/v1/runs", "api/v1/openapi.json"):
                statuses[token, path] = httpx.get(
                    address + path, headers=headers, verify=False, timeout=LOADED_S
                ).status_code
    expected = {"": 401, "wrong": 401, "token": 200, "read_token": 200, "write_token": 403}
    assert statuses == {(token, path): expected[token] for token, path in statuses}


def test_routes_send_no_cors_headers_and_reject_foreign_hosts_and_posts(address: str) -> None:
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    answer = httpx.get(f"{address}/api/v1/runs", headers=foreign, verify=False, timeout=LOADED_S)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    asked = httpx.options(
        f"{address}/api/v1/runs",
        headers=foreign | {"Access-Control-Request-Method": "GET"},
        verify=False,
        timeout=LOADED_S,
    )
    assert not [name for name in asked.headers if name.startswith("access-control")]
    assert (
        httpx.get(
            f"{address}/api/v1/runs", headers={"Host": "evil.example"}, verify=False, timeout=LOADED_S
        ).status_code
        == 421
    )
    refused = httpx.post(f"{address}/api/v1/runs", verify=False, timeout=LOADED_S)
    assert (refused.status_code, refused.json()["error"]) == (405, "POST is not allowed")
