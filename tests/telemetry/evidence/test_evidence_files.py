"""Evidence on its way: what is kept of which stall, what waits for the collector, what comes back from a spool."""

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
def counted() -> Iterator[None]:
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def made(kind: Kind, body: str, *, rank: int = 0, at_ns: int = 5) -> Evidence:
    return Evidence(rank=rank, at_ns=at_ns, kind=kind, body=body)


def state(step: int) -> Evidence:
    return made("state", json.dumps({"step": step}))


def test_what_was_kept_comes_back_as_it_was(tmp_path: Path) -> None:
    evidence = [state(3), made("log", "[]"), made("stack", "überlang")]
    keep(tmp_path, evidence)
    assert sorted(kept(tmp_path, 0), key=lambda one: one.kind) == sorted(evidence, key=lambda one: one.kind)


def test_what_is_left_of_another_step_goes_and_the_store_is_told(tmp_path: Path) -> None:
    keep(tmp_path, [state(3), made("stack", "{}")])
    assert discard_other_steps(tmp_path, 0, 3) == []
    gone = discard_other_steps(tmp_path, 0, 4)
    assert {(one.kind, one.body) for one in gone} == {("state", ""), ("stack", "")}
    assert kept(tmp_path, 0) == []


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', "[" * 100_000, '{"step": "three"}'])
def test_a_state_that_is_none_is_of_another_step(tmp_path: Path, body: str) -> None:
    keep(tmp_path, [made("state", body)])
    assert len(discard_other_steps(tmp_path, 0, 0)) == 1


def test_of_what_waits_the_newest_counts_and_what_is_sent_is_gone() -> None:
    outbox = EvidenceQueue()
    outbox.put(OWNER, [made("state", "old"), made("log", "[]")])
    outbox.put(OWNER, [made("state", "new")])
    ((owner, batch),) = outbox.batches()
    assert {one.body for one in batch} == {"new", "[]"}
    outbox.put(owner, [made("state", "newest")])
    outbox.sent(owner, batch)
    ((_, rest),) = outbox.batches()
    assert [one.body for one in rest] == ["newest"]


def test_much_evidence_goes_in_several_posts_each_of_one_job() -> None:
    outbox = EvidenceQueue()
    large = "x" * (BATCH_CHARACTERS // 2)
    outbox.put(OWNER, [made("stack", large, rank=rank) for rank in range(4)])
    outbox.put(("other", 0), [made("stack", "small")])
    batches = list(outbox.batches())
    assert [(owner[0], len(batch)) for owner, batch in batches] == [("other", 1), ("run", 2), ("run", 2)]


class Job:
    """This process as a rank that stands in a step, watched with a manual clock."""

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

    def look_after(self, seconds: float) -> None:
        self.now_s += seconds
        self.watch.check()

    def stand_still(self) -> None:
        """Long enough for it to be seen."""
        for _ in range(25):
            self.look_after(1.0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path / "spool")
    yield job
    job.watch.stop()


def test_evidence_of_a_stall_is_taken_again_now_and_then(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
        first = {one.kind: one.at_ns for one in kept(job.folder, 0)}
        assert {"state", "stack"} <= first.keys()
        job.look_after(1)
        assert {one.kind: one.at_ns for one in kept(job.folder, 0)} == first
        job.look_after(30)
        again = {one.kind: one.at_ns for one in kept(job.folder, 0)}
    assert all(again[kind] > first[kind] for kind in first)


def test_what_is_taken_of_several_ranks_is_shipped_in_one_piece(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
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
        job.look_after(1)
        job.stand_still()
        found = {one.kind: one.body for one in kept(job.folder, 0)}
    assert json.loads(found["state"])["step"] == 1
    assert found.get("flight-recorder") != "old"


def test_a_job_that_goes_on_leaves_none(job: Job) -> None:
    for number in range(100):
        with telemetry.step(number):
            job.now_s = 0
            job.look_after(9)
    telemetry.stop()
    job.watch.last_check()
    assert kept(job.folder, 0) == []
    assert not len(job.watch.queue)


class BrokenLogs(JobLogs):
    def read_on(self) -> None:
        raise ValueError("no log of this kind")


def test_what_goes_wrong_with_one_job_holds_up_no_other(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_an_agent_that_begins_in_a_stall_leaves_the_evidence_of_it_when_its_ranks_end(job: Job) -> None:
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


def test_a_later_agent_ships_what_an_earlier_one_could_not(job: Job, embedded: EmbeddedStore) -> None:
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


def test_rank_files_bring_their_evidence_along(job: Job) -> None:
    with telemetry.step(0):
        job.stand_still()
    store = store_from_spool(job.spool)
    rows = StoreReader(store).read(queries.Evidence(**RUN)).to_pylist()
    assert {row["kind"] for row in rows} == {one.kind for one in kept(job.folder, 0)}
    store.close()
