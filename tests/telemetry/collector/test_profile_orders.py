"""Profile orders: who may send one, for which ranks, and how agents receive it."""

import json
import os
from typing import Any

import httpx
import pytest

from telemetry.collector.profiles import ProfileOrders
from telemetry.errors import UsageError
from telemetry.profiles import Phase, ProfileOutcome
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import ProfileRequests
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import decode_batch, encode
from telemetry.wire.profile_order import ProfileOrder, decode_order
from tests.each_case import each_case
from tests.telemetry.made_rows import made, of_run
from tests.telemetry.served import collecting

TOKENS = {"token": "all", "write_token": "in", "read_token": "out"}
KEY: dict[str, Any] = {"run_id": "run", "attempt": 0}
ORDER = {**KEY, "ranks": [0, 2]}
ID = "ab" * 16


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
        monkeypatch.delenv(name)


def announce(client: CollectorClient, *, meta: str = '{"profiles": "1"}', started_ns: int = 5) -> None:
    common = {"dp_size": 3, "opened_ns": 5, "started_ns": started_ns, "meta": meta}
    rows = [{**common, "rank": rank} for rank in range(3)]
    client.post("ranks", of_run(made("ranks", rows)))


def beat(client: CollectorClient, *ranks: int, at_ns: int | None = None, ended: int = 0) -> Any:
    now_ns = client.time().answered_ns if at_ns is None else at_ns
    rows = [{"rank": rank, "at_ns": now_ns, "beat_ns": now_ns, "alive": 1, "ended": ended} for rank in ranks]
    return client.post("heartbeats", of_run(made("heartbeats", rows), openings=dict.fromkeys(ranks, 5)))


def state(rank: int, phase: str, body: str = "") -> Any:
    rows = [{"rank": rank, "profile_id": ID, "at_ns": 1, "phase": phase, "body": body}]
    return of_run(made("profile_states", rows), openings={rank: 5})


def test_profile_order_is_accepted_only_with_the_full_token(embedded: EmbeddedStore) -> None:
    with collecting(embedded, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        announce(client)
        beat(client, 0, 1, 2)
        answers = {
            token: http.post("/v1/profiles", json=ORDER, headers={"Authorization": f"Bearer {token}"})
            for token in ("wrong", "in", "out", "all")
        }
        statuses = {token: answer.status_code for token, answer in answers.items()}
        assert statuses == {"wrong": 401, "in": 403, "out": 403, "all": 200}
        assert answers["out"].json()["hint"] == "use the collector's RANKSCOPE_TOKEN"
    requests = StoreReader(embedded).read(ProfileRequests(**KEY)).to_pylist()
    assert [row["rank"] for row in requests] == [0, 2]


def test_a_collector_without_a_full_token_accepts_no_order(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        announce(client)
        beat(client, 0, 1, 2)
        answer = http.post("/v1/profiles", json=ORDER)
        assert answer.status_code == 403
        assert "RANKSCOPE_TOKEN" in answer.json()["error"]
    with (
        collecting(embedded, write_token="in", read_token="out") as client,
        httpx.Client(base_url=client.url, verify=False) as http,
    ):
        for token in ("in", "out"):
            told = {"Authorization": f"Bearer {token}"}
            assert http.post("/v1/profiles", json=ORDER, headers=told).status_code == 403


def test_profile_order_from_a_page_of_another_site_is_refused(embedded: EmbeddedStore) -> None:
    with collecting(embedded, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        told = {"Authorization": "Bearer all"}
        foreign = http.post("/v1/profiles", json=ORDER, headers={**told, "Sec-Fetch-Site": "cross-site"})
        form = http.post("/v1/profiles", data={"ranks": "0"}, headers=told)
        assert (foreign.status_code, form.status_code) == (403, 415)


def test_ranks_that_cannot_be_profiled_are_refused_with_a_reason(embedded: EmbeddedStore) -> None:
    with collecting(embedded, **TOKENS) as client:

        def refusal(*ranks: int, run_id: str = "run") -> str:
            with pytest.raises(UsageError) as error:
                client.order_profile(ProfileOrder(run_id=run_id, attempt=0, ranks=ranks))
            return error.value.message

        announce(client)
        assert "no run 'other'" in refusal(0, run_id="other")
        assert "no rank 9" in refusal(0, 9)
        assert "rank 0 of run run is not live" in refusal(0)
        beat(client, 0, at_ns=10**18)
        assert "not live" in refusal(0)
        beat(client, 1, ended=1)
        assert "not live" in refusal(1)
        announce(client, meta="{}", started_ns=6)
        beat(client, 0)
        assert "without profiles" in refusal(0)


def test_profile_request_is_returned_with_each_heartbeat_of_its_rank(embedded: EmbeddedStore) -> None:
    with collecting(embedded, **TOKENS) as client:
        announce(client)
        assert beat(client, 0, 1, 2).profiles == ()
        profile_id = client.order_profile(ProfileOrder(**KEY, ranks=(2,), steps=7, seconds=9))
        assert beat(client, 0, 1).profiles == ()
        (request,) = beat(client, 1, 2).profiles
        assert (request.profile_id, request.rank, request.steps, request.seconds) == (profile_id, 2, 7, 9)
        assert beat(client, 2).profiles == (request,)


def test_profile_request_is_returned_by_another_collector_until_it_expires(embedded: EmbeddedStore) -> None:
    clock = [10**18]
    reader = StoreReader(embedded)
    first, second = (ProfileOrders(embedded, reader, is_open=True, clock_ns=lambda: clock[0]) for _ in range(2))
    with collecting(embedded, **TOKENS) as client:
        announce(client)
        beat(client, 0, at_ns=clock[0])
    batch = decode_batch("heartbeats", encode(of_run(made("heartbeats", [{"rank": 0}]))))
    assert second.open_for(batch) == []
    first.accept(ProfileOrder(**KEY, ranks=(0,)))
    assert second.open_for(batch) == []  # read at most once a second
    clock[0] += 10**9
    (request,) = second.open_for(batch)
    assert request["rank"] == 0
    clock[0] += 200 * 10**9
    assert second.open_for(batch) == []


def test_an_agent_cannot_request_a_profile(embedded: EmbeddedStore) -> None:
    with collecting(embedded, **TOKENS) as client:
        announce(client)
        with pytest.raises(UsageError, match="unknown table 'profile_requests'"):
            client.post("profile_requests", state(0, "requested"))
        with pytest.raises(UsageError, match="phase of a profile"):
            client.post("profile_states", state(0, Phase.REQUESTED))


@each_case(
    ("table", "row", "reason"),
    [
        ("profile_states", {"profile_id": "../x", "phase": "taken"}, "profile_id"),
        ("profile_states", {"profile_id": ID, "phase": "taken", "body": "{"}, "outcome"),
        ("profile_states", {"profile_id": ID, "phase": "taken", "at_ns": 2**62}, "future"),
        ("profile_states", {"profile_id": ID, "phase": "x"}, "phase"),
        ("profile_parts", {"profile_id": ID, "part": 4096}, "part"),
        ("profile_parts", {"profile_id": ID, "content": "x" * (4 * 2**20 + 1)}, "part"),
    ],
)
def test_profile_rows_with_invalid_values_are_refused(table: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        decode_batch(table, encode(of_run(made(table, [row]))))


@each_case(
    "change",
    [
        {"ranks": []},
        {"ranks": list(range(65))},
        {"ranks": [-1]},
        {"ranks": [10**30]},
        {"ranks": "0"},
        {"steps": 0},
        {"steps": 101},
        {"seconds": 10**9},
        {"run_id": ""},
        {"attempt": -1},
        {"finding": "<script>"},
        {"finding": "x" * 100},
    ],
)
def test_profile_order_with_invalid_values_is_refused(change: dict[str, Any]) -> None:
    assert decode_order(json.dumps(ORDER).encode()).ranks == (0, 2)
    with pytest.raises(UsageError, match=next(iter(change))):
        decode_order(json.dumps({**ORDER, **change}).encode())


@each_case("body", [b"", b"[]", b"{", b"[" * 60_000, b"\xff"])
def test_profile_order_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError, match="profile: "):
        decode_order(body)


@each_case("change", [{"phase": "x"}, {"profile_id": "x"}, {"reason": "x" * 2000}, {"parts": 2**63}])
def test_profile_outcome_with_invalid_values_is_refused(change: dict[str, Any]) -> None:
    good = json.loads(ProfileOutcome(profile_id=ID, phase="done").to_json())
    assert ProfileOutcome.parse(json.dumps(good)).phase == "done"
    with pytest.raises(ValueError, match=r"profile|range"):
        ProfileOutcome.parse(json.dumps({**good, **change}))
