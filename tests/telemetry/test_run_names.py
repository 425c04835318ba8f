"""Another job under a stored run name is refused, so its rows are not mistaken for duplicates."""

import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import telemetry
from telemetry.agent.host import Host
from telemetry.agent.loop import Agent
from telemetry.agent.settings import AgentSettings
from telemetry.agent.watch import EvidenceWatch
from telemetry.errors import TakenNameError, UsageError
from telemetry.evidence.evidence import Evidence, keep
from telemetry.record.reader import RankReader
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from tests.forkserver import Program
from tests.telemetry.made_rows import made, numbered_spans, of_run
from tests.telemetry.served import collecting


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


@pytest.fixture(autouse=True)
def gc_disabled() -> Iterator[None]:
    gc.disable()
    yield
    telemetry.stop()
    gc.enable()


def record(spool: Path, *, rank: int = 0, run_id: str = "run") -> Path:
    session = telemetry.start(run_id, topology=Topology(dp=2), rank=rank, attempt=0, spool=spool, agent=False)
    telemetry.sample("loss", 1.5)
    telemetry.stop()
    assert session.folder is not None
    return session.folder


def ship(spool: Path, collector: CollectorClient) -> None:
    settings = AgentSettings(spool=spool, collector=collector.url, interval_s=0.02, patience_s=0.0, appear_s=0.0)
    Agent(Host(spool), collector, settings).run(threading.Event())


def num_samples(store: Store) -> int:
    return int(store.query("SELECT count() AS n FROM samples")["n"][0].as_py())


def test_new_folder_under_a_stored_run_name_is_refused_and_its_files_are_kept(
    tmp_path: Path, collector: CollectorClient, embedded: Store
) -> None:
    record(tmp_path / "first")
    ship(tmp_path / "first", collector)
    folder = record(tmp_path / "second")
    with pytest.raises(UsageError, match=r"run 'run', attempt 0: rank 0 [^$]*hint: give each run a unique name"):
        ship(tmp_path / "second", collector)
    assert RankReader(folder).acked() == 0
    assert list(folder.glob("*.rec"))
    assert num_samples(embedded) == 1


def test_agent_of_a_refused_run_exits_with_status_2(tmp_path: Path, collector: CollectorClient) -> None:
    record(tmp_path / "first")
    ship(tmp_path / "first", collector)
    folder = record(tmp_path / "second")
    command = ["-m", "telemetry.agent", "--spool", str(tmp_path / "second"), "--collector", collector.url]
    assert Program(command, tmp_path / "told").wait(60) == 2
    assert "give each run a unique name" in (tmp_path / "told").read_text()
    assert list(folder.glob("*.rec"))


def test_refused_run_does_not_block_other_runs(
    tmp_path: Path, collector: CollectorClient, embedded: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "first", rank=0)
    ship(tmp_path / "first", collector)
    refused = [record(tmp_path / "second", rank=0), record(tmp_path / "second", rank=1)]
    keep(refused[0], [Evidence(rank=0, at_ns=5, kind="log", body="[]")])
    other = record(tmp_path / "second", run_id="sound")
    settings = AgentSettings(spool=tmp_path / "second", collector=collector.url, patience_s=0.0, appear_s=0.0)
    watch = EvidenceWatch(tmp_path / "second")
    agent = Agent(Host(tmp_path / "second"), collector, settings, watch)
    watch.check()
    for _ in range(3):
        agent.turn()
    with pytest.raises(TakenNameError):
        agent.run(threading.Event())
    watch.stop()
    assert [list(folder.glob("*.rec")) != [] for folder in (*refused, other)] == [True, True, False]
    reported = [line for line in capsys.readouterr().err.splitlines() if line.startswith("rankscope agent")]
    assert len(reported) == 1
    assert "already stored" in reported[0]
    assert num_samples(embedded) == 2
    assert embedded.query("SELECT DISTINCT rank FROM ranks WHERE run_id = 'run'")["rank"].to_pylist() == [0]
    assert embedded.query("SELECT count() AS n FROM evidence")["n"].to_pylist() == [0]
    told = embedded.query("SELECT run_id, count() AS n FROM heartbeats GROUP BY run_id ORDER BY run_id").to_pylist()
    assert [row["run_id"] for row in told] == ["run", "sound"]


def test_restart_in_the_same_folder_continues_the_same_job(
    tmp_path: Path, collector: CollectorClient, embedded: Store
) -> None:
    first = RankReader(record(tmp_path)).identity()
    ship(tmp_path, collector)
    again = RankReader(record(tmp_path)).identity()
    ship(tmp_path, collector)
    assert again.opened_ns == first.opened_ns
    assert again.started_ns > first.started_ns
    assert num_samples(embedded) == 2


def test_restart_has_a_later_start_time_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = RankReader(record(tmp_path)).identity()
    monkeypatch.setattr("telemetry.record.rank_identity.time_ns", lambda: first.started_ns - 3600 * 10**9)
    again = RankReader(record(tmp_path)).identity()
    assert (again.opened_ns, again.started_ns) == (first.opened_ns, first.started_ns + 1)


def test_identity_of_an_older_version_uses_its_start_time_as_opening_time(tmp_path: Path) -> None:
    folder = record(tmp_path)
    fields = json.loads((folder / "meta.json").read_text())
    del fields["opened_ns"]
    (folder / "meta.json").write_text(json.dumps(fields))
    assert RankReader(folder).identity().opened_ns == fields["started_ns"]
    record(tmp_path)
    assert RankReader(folder).identity().opened_ns == fields["started_ns"]


def opened(rank: int, at_ns: int) -> pa.Table:
    return made("ranks", [{"rank": rank, "dp_size": 4, "pp_size": 1, "tp_size": 1, "opened_ns": at_ns}])


def test_only_the_refused_batch_of_an_insert_group_is_left_out(embedded: EmbeddedStore) -> None:
    refused: list[str] = []
    with collecting(embedded, linger_s=0.3) as client:
        client.post("ranks", of_run(opened(0, 10)))
        client.post("spans", of_run(numbered_spans(0, 1), openings={0: 10}))

        def post(rows: pa.Table, run_id: str) -> None:
            try:
                client.post("ranks", of_run(rows, run_id=run_id))
            except UsageError as error:
                refused.append(error.message)

        batches = [(opened(0, 11), "run"), (opened(1, 11), "run"), (opened(0, 11), "other")]
        threads = [threading.Thread(target=post, args=batch) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 1
    rows = embedded.query("SELECT run_id, rank, opened_ns FROM ranks ORDER BY run_id, rank").to_pylist()
    assert [tuple(row.values()) for row in rows] == [("other", 0, 11), ("run", 0, 10), ("run", 1, 11)]


def test_announcements_without_an_opening_time_are_accepted(collector: CollectorClient) -> None:
    for at_ns in (0, 10, 0, 10):
        assert collector.post("ranks", of_run(opened(0, at_ns))).rows == 1
