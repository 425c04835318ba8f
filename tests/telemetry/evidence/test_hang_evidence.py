"""Real ranks under gloo stop making progress. The agent detects it and collects evidence that shows the cause."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings, StallSettings
from telemetry.agent.watch import EvidenceWatch
from telemetry.agent.watched_job import EvidenceQueue
from telemetry.evidence.collect import collect_evidence
from telemetry.evidence.evidence import kept
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Evidence, Heartbeats
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.telemetry.served import collecting
from tests.telemetry.standing_job import RUN, standing_job

pytestmark = pytest.mark.gloo
SETTINGS = StallSettings(floor_s=1.0, ceiling_s=60.0, confirm_s=0.3)
NEVER = 10**9
"""A step that no test reaches."""
SOME_STEPS = 20
"""This many steps take ten intervals of the agent."""
Bodies = dict[tuple[int, str], Any]


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


@contextmanager
def following(spool: Path, collector: CollectorClient) -> Iterator[EvidenceWatch]:
    """A running agent."""
    settings = AgentSettings(
        spool=spool, collector=collector.url, interval_s=0.1, patience_s=5, appear_s=120, stall=SETTINGS
    )
    watch = EvidenceWatch(spool, settings=SETTINGS, interval_s=0.1)
    stop = threading.Event()
    thread = threading.Thread(target=Agent(Host(spool), collector, settings, watch).run, args=(stop,))
    watch.start()
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()
        watch.stop()


def stored(collector: CollectorClient) -> Bodies:
    rows = collector.read(Evidence(**RUN)).to_pylist()
    return {(row["rank"], row["kind"]): json.loads(row["body"]) for row in rows}


def on_disk(spool: Path) -> Bodies:
    folders = sorted(spool.glob("job/0/rank-*"))
    return {(rank, one.kind): json.loads(one.body) for rank, folder in enumerate(folders) for one in kept(folder, rank)}


def live(spool: Path, rank: int) -> LiveState:
    return RankReader(spool / f"job/0/rank-{rank:05d}").live()


def main_stack(body: dict[str, Any]) -> str:
    (main,) = [thread for thread in body["threads"] if thread["main"]]
    return "\n".join(main["frames"])


@pytest.mark.parametrize(
    ("how", "process", "function"),
    [
        pytest.param("stop", "stopped", "stop_itself", marks=pytest.mark.long),
        pytest.param("loop", "alive", "loop_for_ever", marks=pytest.mark.long),
        ("gil", "alive", "hold_the_interpreter"),
    ],
)
def test_agent_stores_state_stack_log_and_flight_recorder_of_a_hung_job(
    tmp_path: Path, collector: CollectorClient, how: str, process: str, function: str
) -> None:
    spool = tmp_path / "spool"
    with standing_job(spool, how), following(spool, collector):
        until(lambda: (2, "flight-recorder") in stored(collector), seconds=60, what="evidence in the store")
        beats_before = collector.read(Heartbeats(**RUN))["at_ns"].to_pylist()
        until(lambda: min(collector.read(Heartbeats(**RUN))["at_ns"].to_pylist()) > max(beats_before), what="beats")
        found = stored(collector)
        assert on_disk(spool).keys() == found.keys()
    state = found[1, "state"]
    assert (state["process"], state["step"], state["died_ns"]) == (process, 30, 0)
    assert [one["stage"] for one in state["open"]] == ["step", "data-load"]
    assert function in main_stack(found[1, "stack"])
    assert "standing_job.py:" in main_stack(found[1, "stack"])
    (line,) = found[1, "log"]
    assert (line["text"], line["fault"]) == ("about to go wrong", "")
    for victim in (0, 2):
        assert found[victim, "state"]["process"] == "alive"
        (operation,) = [one for one in found[victim, "state"]["operations"] if one["issued"] > one["completed"]]
        assert (operation["axis"], operation["issued"]) == ("dp", 31)
        assert "all_reduce" in main_stack(found[victim, "stack"])
        assert found[victim, "flight-recorder"]["pg_status"]["0"]
    assert ((1, "flight-recorder") in found) is (how != "stop")


def test_killed_rank_is_reported_with_its_time_of_death(tmp_path: Path, collector: CollectorClient) -> None:
    spool = tmp_path / "spool"
    before_ns = time.time_ns()
    with following(spool, collector), standing_job(spool, "loop", step=NEVER) as pids:
        # The agent knows the rank before it dies. It cannot know the time of an earlier death.
        until(lambda: len(collector.read(Heartbeats(**RUN))) == 3, seconds=60, what="the agent follows")
        known_at = live(spool, 1).step
        until(lambda: live(spool, 1).step > known_at + SOME_STEPS, what="a second of steps")
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: stored(collector).get((1, "state"), {}).get("died_ns"), seconds=60, what="the time of death")
        found = stored(collector)
    state = found[1, "state"]
    assert before_ns < state["died_ns"] < time.time_ns()
    assert (state["process"], state["step"]) == ("dead", live(spool, 1).step)
    assert {rank for rank, kind in found if kind == "state"} == {0, 1, 2}


@pytest.mark.long
def test_evidence_shows_which_rank_died_first(tmp_path: Path, collector: CollectorClient) -> None:
    """The launcher ends the other ranks a moment later."""
    spool = tmp_path / "spool"
    with standing_job(spool, "loop", step=NEVER) as pids, following(spool, collector):
        until(lambda: len(collector.read(Heartbeats(**RUN))) == 3, seconds=60, what="the agent follows")
        os.kill(pids[2], signal.SIGKILL)
        until(lambda: died(stored(collector)).keys() == {0, 1, 2}, what="deaths")
        died_ns = died(stored(collector))
    assert min(died_ns, key=died_ns.__getitem__) == 2


def died(found: Bodies) -> dict[int, int]:
    """Time of death of each rank whose death is known."""
    return {rank: body["died_ns"] for (rank, kind), body in found.items() if kind == "state" and body["died_ns"]}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_evidence_of_a_stall_is_kept_when_a_signal_ends_the_job(tmp_path: Path, number: signal.Signals) -> None:
    """After SIGINT, Python unwinds. The rank ends normally, and its state page no longer shows the stall."""
    spool = tmp_path / "spool"
    watch = EvidenceWatch(spool, settings=SETTINGS, interval_s=0.1)
    with standing_job(spool, "loop") as pids:
        watch.start()
        until(lambda: all((rank, "stack") in on_disk(spool) for rank in range(3)), seconds=180, what="evidence")
        before = on_disk(spool)
        until(lambda: emptied(watch.queue), what="all of it is handed on")
        for pid in (pids[1], pids[0], pids[2]):
            os.kill(pid, number)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), what="the end of the job")
        watch.last_check()
    assert live(spool, 1).ended is (number == signal.SIGINT)
    assert on_disk(spool) == before
    assert not len(watch.queue), "the store is told nothing else"
    left = {(one.rank, one.kind): json.loads(one.body) for one in collect_evidence(spool, "job", 0)}
    assert left == before
    assert [one["stage"] for one in left[1, "state"]["open"]] == ["step", "data-load"]
    assert "loop_for_ever" in main_stack(left[1, "stack"])


def emptied(outbox: EvidenceQueue) -> bool:
    """Take everything that waits to be shipped. Return whether the queue was empty."""
    batches = list(outbox.batches())
    for owner, batch in batches:
        outbox.sent(owner, batch)
    return not batches


def test_evidence_is_in_the_spool_if_there_is_no_collector(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    watch = EvidenceWatch(spool, settings=SETTINGS, interval_s=0.1)
    with standing_job(spool, "loop"):
        watch.start()
        until(lambda: (1, "stack") in on_disk(spool), seconds=60, what="evidence on disk")
    watch.stop()
    left = {(one.rank, one.kind): json.loads(one.body) for one in collect_evidence(spool, "job", 0)}
    assert "loop_for_ever" in main_stack(left[1, "stack"])
    assert {left[rank, "state"]["process"] for rank in range(3)} == {"alive"}, "as it was taken down"


def test_evidence_can_be_collected_without_an_agent(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with standing_job(spool, "loop", step=3):
        page = spool / "job/0/rank-00001"
        until(lambda: main_is_in(spool, "loop_for_ever"), seconds=60, what="the loop")
        found = {(one.rank, one.kind) for one in collect_evidence(spool)}
    assert {(rank, kind) for rank in range(3) for kind in ("state", "stack", "flight-recorder", "log")} == found
    assert not (page / "evidence").exists()


def main_is_in(spool: Path, function: str) -> bool:
    stacks = [json.loads(one.body) for one in collect_evidence(spool) if (one.rank, one.kind) == (1, "stack")]
    return bool(stacks) and function in main_stack(stacks[0])


@pytest.mark.long
def test_log_of_a_failed_rank_is_stored_with_its_faults(tmp_path: Path, collector: CollectorClient) -> None:
    """The rank stops recording normally when its exception passes. Only its log shows the failure."""
    spool = tmp_path / "spool"
    with standing_job(spool, "fail"), following(spool, collector):
        until(lambda: "cuda-error" in faults(stored(collector), 1), seconds=60, what="the fault in the store")
        assert "python-traceback" in faults(stored(collector), 1)


def faults(found: Bodies, rank: int) -> list[str]:
    return [line["fault"] for line in found.get((rank, "log"), [])]
