"""A store in use gets 100 hostile batches. Later runs of any name are complete, and each refusal is reported."""

import gc
import re
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import telemetry
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.collector.api import LINES_A_MINUTE
from telemetry.stages import Stage
from telemetry.stores.queries import LAST_STEP, Marks, Ranks, Spans
from telemetry.topology import Topology
from telemetry.wire.codec import ARROW_TYPE
from tests.integration.attacked import Attacked, attacked
from tests.integration.hostile_batches import KINDS, NUM_RANKS, Hostile, Targets, batch_at

SEED = 23
SENDERS = 64
STEPS = 40
LATER = ("later", "later-2", "run-20261124-120000", "übung 7")
OTHERS = ("other",)
LIVE = "live"
TARGETS = Targets(later=LATER, live=LIVE)


@pytest.fixture(autouse=True)
def gc_disabled() -> Iterator[None]:
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def record(spool: Path, run_id: str) -> None:
    """Both ranks, one after the other: ``STEPS`` spans each, and a mark."""
    for rank in range(NUM_RANKS):
        telemetry.start(run_id, topology=Topology(dp=NUM_RANKS), rank=rank, attempt=0, spool=spool, agent=False)
        for number in range(STEPS):
            with telemetry.step(number), telemetry.span(Stage.DATA_LOAD):
                pass
        telemetry.mark("recorded", run_id)
        telemetry.stop()


def ship(spool: Path, target: Attacked) -> None:
    """Send as the agent does, until everything is stored."""
    settings = AgentSettings(spool=spool, collector=target.url, interval_s=0.02, patience_s=5.0, appear_s=0.0)
    with target.client() as client:
        Agent(Host(spool), client, settings).run(threading.Event())


def send(http: httpx.Client, batch: Hostile) -> httpx.Response:
    return http.post(f"/v1/batches/{batch.table}", content=batch.body, headers={"Content-Type": ARROW_TYPE})


def assert_complete(target: Attacked, run_id: str) -> None:
    """Every record of the run is stored exactly once. Hostile spans began in 1970."""
    with target.client() as client:
        found = client.read(Spans(run_id=run_id, attempt=0, first_step=0, last_step=LAST_STEP)).to_pylist()
        hosts = client.read(Ranks(run_id=run_id, attempt=0))["host"].to_pylist()
        marks = client.read(Marks(run_id=run_id, attempt=0, names=("recorded",)))
    counts = Counter((row["rank"], row["seq"]) for row in found if row["start_ns"] > 10**18)
    assert Counter(rank for rank, _ in counts) == dict.fromkeys(range(NUM_RANKS), 2 * STEPS), run_id
    assert set(counts.values()) == {1}, run_id
    assert marks["rank"].to_pylist() == list(range(NUM_RANKS)), run_id
    assert "intruder" not in hosts, run_id


def assert_reported(answer: httpx.Response, batch: Hostile, index: int) -> None:
    """The sender learns whether the batch is stored, and if not, why."""
    assert answer.status_code in (200, 400, 409, 416, 425, 428), (index, batch.kind, answer.text)
    assert answer.status_code != 200 or not batch.must_refuse, (index, batch.kind, batch.table)
    if answer.status_code != 200:
        assert answer.json()["error"], (index, batch.kind)
        assert answer.json()["hint"], (index, batch.kind)


def rejected(http: httpx.Client) -> dict[int, int]:
    """Number of refused batches by HTTP status, from the metrics of the collector."""
    found = re.findall(
        r'^rankscope_batches_rejected_total\{status="(\d+)"\} (\d+)\.0$', http.get("/metrics").text, re.M
    )
    return {int(status): int(count) for status, count in found}


@pytest.mark.parametrize("num_batches", [100, pytest.param(200, marks=pytest.mark.long)])
def test_later_runs_are_complete_and_each_refusal_is_reported_after_hostile_batches(
    tmp_path: Path, num_batches: int
) -> None:
    with attacked(tmp_path, "--no-dashboard", RANKSCOPE_REQUESTS_PER_SECOND="0") as target, target.http() as http:
        record(tmp_path / "live", LIVE)
        ship(tmp_path / "live", target)
        batches = [batch_at(SEED, index, TARGETS) for index in range(num_batches)]
        assert {batch.kind for batch in batches} == KINDS.keys()
        with ThreadPoolExecutor(SENDERS) as senders:
            answers = list(senders.map(lambda batch: send(http, batch), batches))
        for index, (batch, answer) in enumerate(zip(batches, answers, strict=True)):
            assert_reported(answer, batch, index)
        statuses = Counter(answer.status_code for answer in answers if answer.status_code != 200)
        assert rejected(http) == statuses
        for run_id in (*LATER, *OTHERS):
            record(tmp_path / "spool", run_id)
        record(tmp_path / "live", LIVE)
        ship(tmp_path / "spool", target)
        ship(tmp_path / "live", target)
        for run_id in (*LATER, *OTHERS):
            assert_complete(target, run_id)
        assert rejected(http) == statuses
        with target.client() as client:
            live = client.read(Spans(run_id=LIVE, attempt=0, first_step=0, last_step=LAST_STEP))
        assert live.num_rows == len(set(zip(live["rank"].to_pylist(), live["seq"].to_pylist(), strict=True)))
        assert live.num_rows == 2 * NUM_RANKS * 2 * STEPS
    logged = [line for line in target.said().splitlines() if "refused a batch" in line]
    assert LINES_A_MINUTE <= len(logged) < num_batches
