"""Evidence of a stall is kept on disk, queued for the collector and read back from a spool."""

import gc
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import telemetry
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings, StallSettings
from telemetry.agent.stall import SECOND_NS
from telemetry.agent.watch import EvidenceWatch
from telemetry.agent.watched_job import BATCH_CHARACTERS, EvidenceQueue
from telemetry.errors import UnreachableError
from telemetry.evidence.evidence import Evidence, Kind, discard_other_steps, keep, kept
from telemetry.evidence.logs import JobLogs
from telemetry.imports.spool import store_from_spool
from telemetry.record.reader import RankReader
from telemetry.stores import queries
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.telemetry.faulty_store import FaultyStore
from tests.telemetry.served import collecting

RUN = {"run_id": "run", "attempt": 0}
OWNER = ("run", 0)


@pytest.fixture(autouse=True)
def gc_disabled() -> Iterator[None]:
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def made(kind: Kind, body: str, *, rank: int = 0, at_ns: int = 5) -> Evidence:
    return Evidence(rank=rank, at_ns=at_ns, kind=kind, body=body)


def state(step: int) -> Evidence:
    return made("state", json.dumps({"step": step}))


def test_kept_evidence_is_read_back_unchanged(tmp_path: Path) -> None:
    evidence = [state(3), made("log", "[]"), made("stack", "überlang")]
    keep(tmp_path, evidence)
    assert sorted(kept(tmp_path, 0), key=lambda one: one.kind) == sorted(evidence, key=lambda one: one.kind)


def test_evidence_of_another_step_is_deleted_and_withdrawn_with_empty_bodies(tmp_path: Path) -> None:
    keep(tmp_path, [state(3), made("stack", "{}")])
    assert discard_other_steps(tmp_path, 0, 3) == []
    gone = discard_other_steps(tmp_path, 0, 4)
    assert {(one.kind, one.body) for one in gone} == {("state", ""), ("stack", "")}
    assert kept(tmp_path, 0) == []


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', "[" * 100_000, '{"step": "three"}'])
def test_invalid_state_evidence_counts_as_evidence_of_another_step(tmp_path: Path, body: str) -> None:
    keep(tmp_path, [made("state", body)])
    assert len(discard_other_steps(tmp_path, 0, 0)) == 1


def test_evidence_queue_keeps_the_newest_of_a_kind_and_drops_what_was_sent() -> None:
    outbox = EvidenceQueue()
    outbox.put(OWNER, [made("state", "old"), made("log", "[]")])
    outbox.put(OWNER, [made("state", "new")])
    ((owner, batch),) = outbox.batches()
    assert {one.body for one in batch} == {"new", "[]"}
    outbox.put(owner, [made("state", "newest")])
    outbox.sent(owner, batch)
    ((_, rest),) = outbox.batches()
    assert [one.body for one in rest] == ["newest"]


def test_large_evidence_is_split_into_several_batches_of_one_job_each() -> None:
    outbox = EvidenceQueue()
    large = "x" * (BATCH_CHARACTERS // 2)
    outbox.put(OWNER, [made("stack", large, rank=rank) for rank in range(4)])
    outbox.put(("other", 0), [made("stack", "small")])
    batches = list(outbox.batches())
    assert [(owner[0], len(batch)) for owner, batch in batches] == [("other", 1), ("run", 2), ("run", 2)]


class Job:
    """This process as a rank that makes no progress in a step, watched with a manual clock."""

    def __init__(self, spool: Path) -> None:
        self.now_s = 0.0
        self.spool = spool
        session = telemetry.start("run", topology=Topology(), rank=0, attempt=0, spool=spool, agent=False)
        assert session.folder is not None
        self.folder = session.folder
        settings = StallSettings(floor_s=10, ceiling_s=20)
        self.watch = EvidenceWatch(spool, settings=settings, clock=self._now_ns)

    def _now_ns(self) -> int:
        began = RankReader(self.folder).live().step_started_ns
        return began + round(self.now_s * SECOND_NS)

    def check_after(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch.check()

    def stand_still(self) -> None:
        """Make no progress for long enough that the watch detects a stall."""
        for _ in range(25):
            self.check_after(1.0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path / "spool")
    yield job
    job.watch.stop()


def test_evidence_of_a_long_stall_is_collected_again_after_30_seconds(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
        first = {one.kind: one.at_ns for one in kept(job.folder, 0)}
        assert {"state", "stack"} <= first.keys()
        job.check_after(1)
        assert {one.kind: one.at_ns for one in kept(job.folder, 0)} == first
        job.check_after(30)
        again = {one.kind: one.at_ns for one in kept(job.folder, 0)}
    assert all(again[kind] > first[kind] for kind in first)


def test_evidence_of_several_ranks_is_queued_together(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    second = job.folder.with_name("rank-00001")
    shutil.copytree(job.folder, second, ignore=shutil.ignore_patterns("worker", "*.new"))
    meta = json.loads((second / "meta.json").read_text())
    (second / "meta.json").write_text(json.dumps({**meta, "rank": 1, "topology": {"dp": 2, "pp": 1, "tp": 1}}))
    waiting: list[tuple[str, int]] = []

    def keep_and_count(folder: Path, evidence: list[Evidence]) -> None:
        waiting.append((folder.name, len(job.watch.queue)))
        keep(folder, evidence)

    monkeypatch.setattr("telemetry.agent.watch.keep", keep_and_count)
    with telemetry.step(0):
        job.stand_still()
    states = waiting[:2]
    assert states == [(job.folder.name, 0), (second.name, 0)]


def test_evidence_of_an_earlier_stall_is_replaced(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
    keep(job.folder, [made("flight-recorder", "old")])
    with telemetry.step(1):
        job.now_s = 0
        job.check_after(1)
        job.stand_still()
        found = {one.kind: one.body for one in kept(job.folder, 0)}
    assert json.loads(found["state"])["step"] == 1
    assert found.get("flight-recorder") != "old"


def test_job_that_makes_progress_leaves_no_evidence(job: Job) -> None:
    for number in range(100):
        with telemetry.step(number):
            job.now_s = 0
            job.check_after(9)
    telemetry.stop()
    job.watch.last_check()
    assert kept(job.folder, 0) == []
    assert not len(job.watch.queue)


class BrokenLogs(JobLogs):
    def read_on(self) -> None:
        raise ValueError("no log of this kind")


def test_error_in_one_job_does_not_stop_the_evidence_of_other_jobs(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    first, spoiled = job.spool / "a" / "0" / job.folder.name, job.spool / "b" / "0" / job.folder.name
    for copy in (first, spoiled):
        shutil.copytree(job.folder, copy, ignore=shutil.ignore_patterns("worker", "*.new"))
    (spoiled / "meta.json").write_text("[]")
    with telemetry.step(0):
        job.watch.check()
        job.watch._jobs["a", 0].logs = BrokenLogs()
        job.stand_still()
        assert {"state", "stack"} <= {one.kind for one in kept(job.folder, 0)}
    job.watch.last_check()
    assert capsys.readouterr().err.count("collecting evidence failed") == 1


def test_agent_started_during_a_stall_keeps_its_evidence_when_the_ranks_end(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
        job.watch.stop()
        before = kept(job.folder, 0)
        later = EvidenceWatch(job.spool)
        later.check()
    telemetry.stop()
    later.last_check()
    assert kept(job.folder, 0) == before


def agent_over(spool: Path, store: FaultyStore, **settings: float) -> None:
    with collecting(store) as collector:
        chosen = AgentSettings(spool=spool, collector=collector.url, interval_s=0.02, patience_s=0.0, appear_s=0.0)
        watch = EvidenceWatch(spool, interval_s=0.02)
        watch.start()
        try:
            Agent(Host(spool), collector, chosen, watch).run(threading.Event())
        finally:
            watch.stop()


def test_later_agent_ships_evidence_that_an_earlier_agent_could_not_ship(job: Job, embedded: EmbeddedStore) -> None:
    with telemetry.step(0):
        job.stand_still()
    telemetry.stop()
    job.watch.stop()
    faulty = FaultyStore(embedded)
    faulty.down = True
    with pytest.raises(UnreachableError):
        agent_over(job.spool, faulty)
    faulty.down = False
    agent_over(job.spool, faulty)
    rows = StoreReader(embedded).read(queries.Evidence(**RUN)).to_pylist()
    assert {row["kind"]: row["body"] for row in rows} == {one.kind: one.body for one in kept(job.folder, 0)}


def test_store_built_from_a_spool_contains_the_kept_evidence(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
    store = store_from_spool(job.spool)
    rows = StoreReader(store).read(queries.Evidence(**RUN)).to_pylist()
    assert {row["kind"] for row in rows} == {one.kind for one in kept(job.folder, 0)}
    store.close()
