"""The agent with real rank files and a real collector: what it ships, what it deletes, and when it ends."""

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

import telemetry
from telemetry.agent import loop
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.errors import UnreachableError, UnreadableError, UsageError
from telemetry.evidence.evidence import Stamps
from telemetry.evidence.rank_state import is_alive
from telemetry.imports.spool import store_from_spool
from telemetry.record.reader import RankReader
from telemetry.records import RankIdentity
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Heartbeats, HighWater, Marks, Ranks, Samples, Spans
from telemetry.tables import ENDED_WELL
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import Ack
from tests.deadline import until
from tests.forkserver import Program
from tests.telemetry.faulty_store import FaultyStore
from tests.telemetry.recording import session
from tests.telemetry.served import collecting

RUN = {"run_id": "run", "attempt": 0}
LONG_TEXT = "überlang " * 30
STEPS = 5
RECORDS = STEPS * 3
"""Each step records a step span, a forward span and a sample."""


def record(spool: Path, *, rank: int = 0, steps: int = STEPS, end: bool = True) -> Path:
    """Record as one of two ranks in this process. Return the folder of the rank."""
    session = telemetry.start(
        "run", topology=Topology(dp=2), rank=rank, local_rank=rank, host="host", attempt=0, spool=spool, agent=False
    )
    assert session.folder is not None
    for number in range(steps):
        with telemetry.step(number), telemetry.span("forward-compute", microbatch=1, size_bytes=8):
            pass
        telemetry.sample("loss", 1.5)
    if end:
        telemetry.stop()
    return session.folder


@pytest.fixture
def faulty(embedded: EmbeddedStore) -> FaultyStore:
    return FaultyStore(embedded)


@pytest.fixture
def collector(faulty: FaultyStore) -> Iterator[CollectorClient]:
    with collecting(faulty) as client:
        yield client


@pytest.fixture(autouse=True)
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection: each collection adds a record, and the tests expect an exact number of records."""
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def agent(spool: Path, collector: CollectorClient, *, patience_s: float = 0.0) -> Agent:
    settings = AgentSettings(spool=spool, collector=collector.url, interval_s=0.02, patience_s=patience_s, appear_s=0.0)
    return Agent(Host(spool), collector, settings)


def run(spool: Path, collector: CollectorClient) -> None:
    agent(spool, collector).run(threading.Event())


def spans(collector: CollectorClient) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = collector.read(Spans(**RUN, first_step=0, last_step=2**31)).to_pylist()
    return rows


def test_all_records_are_stored_with_wall_time(tmp_path: Path, collector: CollectorClient) -> None:
    before_ns = time.time_ns()
    record(tmp_path)
    telemetry.stop()
    after_ns = time.time_ns()
    run(tmp_path, collector)
    stored = spans(collector)
    assert len(stored) == 2 * STEPS
    assert all(before_ns - 1_000_000 <= row["start_ns"] <= after_ns + 1_000_000 for row in stored)
    forward = [row for row in stored if row["microbatch"] == 1]
    assert [row["step"] for row in forward] == list(range(STEPS))
    assert {row["size_bytes"] for row in forward} == {8}
    assert collector.read(Samples(**RUN))["value"].to_pylist() == [1.5] * STEPS


def test_a_mark_keeps_a_text_longer_than_a_record(tmp_path: Path, collector: CollectorClient) -> None:
    record(tmp_path, end=False)
    telemetry.mark("note", LONG_TEXT)
    telemetry.stop()
    run(tmp_path, collector)
    (text,) = collector.read(Marks(**RUN))["text"].to_pylist()
    assert text.startswith(LONG_TEXT[:100])


def test_the_rank_is_announced_and_its_end_is_reported(tmp_path: Path, collector: CollectorClient) -> None:
    record(tmp_path, rank=1)
    run(tmp_path, collector)
    (rank,) = collector.read(Ranks(**RUN)).to_pylist()
    assert (rank["rank"], rank["host"], rank["dp_size"], rank["pid"]) == (1, "host", 2, os.getpid())
    (beat,) = collector.read(Heartbeats(**RUN)).to_pylist()
    assert (beat["ended"], beat["step"], beat["recorded"]) == (1, STEPS - 1, RECORDS)


def test_agent_reports_the_end_of_a_rank_that_ends_just_after_the_stop_request(
    tmp_path: Path, collector: CollectorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed launcher stops its agent and its ranks at the same moment."""
    monkeypatch.setattr(loop, "LAST_ROUNDS_S", 30.0)  # a busy machine may need more than a second
    record(tmp_path, end=False)
    stop = threading.Event()
    stop.set()
    last = threading.Thread(target=agent(tmp_path, collector).run, args=(stop,))
    last.start()
    until(lambda: len(collector.read(Heartbeats(**RUN))) > 0, what="a heartbeat")
    telemetry.stop()
    last.join()
    assert collector.read(Heartbeats(**RUN))["ended"].to_pylist() == [ENDED_WELL]


def test_last_heartbeat_is_the_newest_when_the_clock_was_set_back(
    tmp_path: Path, collector: CollectorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_ns = iter([10**18, 10**18 - 3600 * 10**9])
    monkeypatch.setattr("telemetry.evidence.rank_state.next_stamp_ns", Stamps(lambda: next(clock_ns)))
    record(tmp_path, end=False)
    following = agent(tmp_path, collector)
    following.turn()
    telemetry.stop()
    following.turn()
    (beat,) = collector.read(Heartbeats(**RUN)).to_pylist()
    assert beat["ended"] == 1


def test_agent_ships_records_of_a_rank_that_is_still_recording(tmp_path: Path, collector: CollectorClient) -> None:
    folder = record(tmp_path, end=False)
    following = agent(tmp_path, collector)
    following.turn()
    assert len(spans(collector)) == 2 * STEPS
    (beat,) = collector.read(Heartbeats(**RUN)).to_pylist()
    assert (beat["alive"], beat["ended"]) == (1, 0)
    assert list(folder.glob("*.rec"))


def test_agent_counts_the_hosts_of_the_largest_job_that_runs(tmp_path: Path) -> None:
    record(tmp_path, end=False)
    host = Host(tmp_path)
    assert host.num_hosts == 1
    host.find_ranks()
    assert host.num_hosts == 2  # two ranks, one of them here
    telemetry.stop()
    host.beats()
    assert host.num_hosts == 1


class SlowCollector:
    """A rank records new rows while this collector stores the previous ones."""

    def __init__(self) -> None:
        self.tables: list[str] = []

    def post(self, table: str, rows: pa.Table) -> Ack:
        self.tables.append(table)
        with telemetry.step(len(self.tables)):
            pass
        return Ack(rows=rows.num_rows, duplicates=0)


def test_heartbeat_of_a_living_rank_is_sent_before_its_backlog_and_its_end_after_the_last_record(
    tmp_path: Path,
) -> None:
    record(tmp_path, end=False)
    slow = SlowCollector()
    following = Agent(Host(tmp_path), slow, AgentSettings(spool=tmp_path, collector=""))
    following.turn()
    assert slow.tables.index("heartbeats") < slow.tables.index("spans")
    telemetry.stop()
    slow.tables.clear()
    following.turn()
    assert slow.tables == ["spans", "heartbeats"]


def test_records_written_during_a_slow_post_are_shipped_in_the_next_turn(tmp_path: Path) -> None:
    record(tmp_path, end=False)
    slow = SlowCollector()
    following = Agent(Host(tmp_path), slow, AgentSettings(spool=tmp_path, collector=""))
    following.turn()
    assert slow.tables == ["ranks", "heartbeats", "spans", "samples"]
    telemetry.stop()
    following.turn()
    assert slow.tables[4:] == ["spans", "heartbeats"]


def test_segments_are_deleted_only_when_stored(tmp_path: Path, collector: CollectorClient, faulty: FaultyStore) -> None:
    folder = record(tmp_path)
    faulty.down = True
    with pytest.raises(UnreachableError):
        run(tmp_path, collector)
    assert list(folder.glob("*.rec"))
    assert RankReader(folder).acked() == 0
    faulty.down = False
    run(tmp_path, collector)
    assert not list(folder.glob("*.rec"))
    assert RankReader(folder).acked() == RECORDS


def test_spans_are_stored_once_when_a_confirmation_is_lost(
    tmp_path: Path, collector: CollectorClient, faulty: FaultyStore
) -> None:
    record(tmp_path)
    faulty.drop_answers = True
    with pytest.raises(UnreachableError):
        run(tmp_path, collector)
    faulty.drop_answers = False
    run(tmp_path, collector)
    assert len(spans(collector)) == 2 * STEPS


def test_sequence_numbers_continue_when_a_rank_records_again_in_the_same_folder(
    tmp_path: Path, collector: CollectorClient
) -> None:
    """The numbers continue even if all earlier records were shipped and deleted."""
    record(tmp_path)
    run(tmp_path, collector)
    record(tmp_path)
    run(tmp_path, collector)
    assert len(spans(collector)) == 4 * STEPS
    assert collector.read(HighWater(**RUN, table="samples"))["next_seq"].to_pylist() == [2 * RECORDS]


def test_ranks_are_announced_again_after_the_collector_was_unreachable(
    tmp_path: Path, collector: CollectorClient, faulty: FaultyStore, embedded: EmbeddedStore
) -> None:
    record(tmp_path, end=False)
    following = agent(tmp_path, collector)
    following.turn()
    embedded.query("SELECT 1")
    faulty.down = True
    stop = threading.Event()
    stop.set()
    with pytest.raises(UnreachableError):
        following.run(stop)
    faulty.down = False
    following.turn()
    assert embedded.query("SELECT count() AS n FROM ranks")["n"].to_pylist() == [2]


@pytest.mark.parametrize("name", ["000000.rec", "meta.json", "state"])
def test_garbage_in_the_files_of_one_rank_is_reported_and_other_ranks_are_shipped(
    tmp_path: Path, collector: CollectorClient, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    record(tmp_path, rank=0)
    spoiled = record(tmp_path, rank=1)
    (spoiled / name).write_bytes(b"garbage" * 1000)
    following = agent(tmp_path, collector)
    for _ in range(5):
        following.turn()
    assert [row["rank"] for row in spans(collector)].count(0) == 2 * STEPS
    assert str(spoiled) in capsys.readouterr().err
    stop = threading.Event()
    stop.set()
    with pytest.raises(UnreadableError, match="hint: everything else is stored"):
        following.run(stop)


def test_copied_rank_folder_is_not_shipped_as_a_second_rank(tmp_path: Path, collector: CollectorClient) -> None:
    folder = record(tmp_path)
    folder.with_name("rank-00001").mkdir()
    (folder.with_name("rank-00001") / "meta.json").write_text((folder / "meta.json").read_text())
    following = agent(tmp_path, collector)
    for _ in range(4):
        following.turn()
    assert len(spans(collector)) == 2 * STEPS


def test_agent_raises_usage_error_when_there_are_no_rank_files(tmp_path: Path, collector: CollectorClient) -> None:
    with pytest.raises(UsageError, match=r"hint: check the folder.*rankscope\.start"):
        run(tmp_path / "nothing", collector)


def test_agent_command_exits_with_2_and_names_the_collector_option_when_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_COLLECTOR", raising=False)
    told = tmp_path / "told"
    assert Program(["-m", "telemetry.agent", "--spool", str(tmp_path)], told).wait(60) == 2
    assert "--collector" in told.read_text()


def identity(pid: int, started_ns: int) -> RankIdentity:
    return RankIdentity(
        run_id="run", attempt=0, rank=0, host="host", local_rank=0, pid=pid, topology=Topology(), started_ns=started_ns
    )


def test_rank_is_not_alive_when_its_pid_is_unused_or_belongs_to_another_process() -> None:
    born_ns = int(psutil.Process().create_time() * 1e9)
    assert is_alive(identity(os.getpid(), born_ns), Path())
    assert not is_alive(identity(os.getpid(), born_ns - 3600 * 10**9), Path())
    assert not is_alive(identity(2**22 + 1, born_ns), Path())


def test_rank_files_can_be_queried_without_a_collector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, rank=0)
    (record(tmp_path, rank=1) / "meta.json").write_text("{")
    store = store_from_spool(tmp_path)
    assert store.query("SELECT count() AS n FROM spans")["n"].to_pylist() == [2 * STEPS]
    assert "left out" in capsys.readouterr().err
    store.close()
    with pytest.raises(UsageError, match="hint: use --spool with the folder"):
        store_from_spool(tmp_path / "nothing")


@pytest.mark.parametrize("state", [None, b"", b"torn" * 10])
def test_spans_of_rank_files_are_read_when_the_state_page_is_missing_or_invalid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: bytes | None
) -> None:
    page = record(tmp_path) / "state"
    page.unlink()
    if state is not None:
        page.write_bytes(state)
    store = store_from_spool(tmp_path)
    assert store.query("SELECT count() AS n FROM spans")["n"].to_pylist() == [2 * STEPS]
    assert "left out" in capsys.readouterr().err
    store.close()


def test_rank_that_ends_while_its_heartbeat_is_read_is_reported_as_ended_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as recording:
        recording.enter_context(session(tmp_path))
        host = Host(tmp_path)
        host.find_ranks()

        def ends_and_is_gone(_: RankIdentity, folder: Path) -> bool:
            recording.close()
            return False

        monkeypatch.setattr("telemetry.agent.host.is_alive", ends_and_is_gone)
        ((beat,),) = host.beats().values()
    assert (beat["alive"], beat["ended"]) == (0, ENDED_WELL)


@pytest.mark.parametrize(("num_hosts", "shortest_s", "longest_s"), [(1, 0.02, 0.02), (1000, 4.0, 5.0)])
def test_agent_of_a_large_job_pauses_for_longer_between_rounds(
    num_hosts: int,
    shortest_s: float,
    longest_s: float,
    tmp_path: Path,
    collector: CollectorClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record(tmp_path, end=False)
    following, stop, pauses = agent(tmp_path, collector), threading.Event(), []
    monkeypatch.setattr(Host, "num_hosts", num_hosts)

    def rest(stop: threading.Event, seconds: float, *, may_wake: bool) -> None:
        pauses.append(seconds)
        stop.set()

    monkeypatch.setattr(following, "_rest", rest)
    following.run(stop)
    assert shortest_s <= pauses[0] <= longest_s
