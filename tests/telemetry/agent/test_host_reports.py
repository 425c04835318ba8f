"""Samples and events of a host, from an agent thread to the store: thinned, written to a journal, shipped once."""

import os
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import telemetry
from telemetry.agent import host_reports
from telemetry.agent.host import Host
from telemetry.agent.host_reports import HostReports, LivingRanks
from telemetry.agent.loop import Agent
from telemetry.agent.samplers.interface import Event, GoneError, Reading, Sample
from telemetry.agent.sampling import HostWatch, Paced
from telemetry.agent.settings import AgentSettings
from telemetry.agent.thinning import Thinning
from telemetry.errors import UnreachableError, UsageError
from telemetry.evidence import journal
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import Ranks
from telemetry.stores.queries.hosts import HostEvents, HostSamples
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import Ack
from tests.deadline import until
from tests.telemetry.faulty_store import FaultyStore
from tests.telemetry.served import collecting

SECOND_NS = 1_000_000_000
BEGAN_NS = 1_790_000_000 * SECOND_NS
RUN = {"run_id": "run", "attempt": 0}


def level(value: float) -> Reading:
    return Reading(metric="load", device="", value=value, is_counter=False)


def counter(value: float) -> Reading:
    return Reading(metric="errors", device="eth0", value=value, is_counter=True)


def thinned(thinning: Thinning, *readings: Reading, first: int = 0) -> list[tuple[str, int, float]]:
    """Add one reading per second. Return the reported samples, with times in seconds."""
    found = []
    for number, one in enumerate(readings, start=first):
        found += thinning.add(BEGAN_NS + number * SECOND_NS, [one])
    return [(one.metric, (one.at_ns - BEGAN_NS) // SECOND_NS, one.value) for one in found]


def test_a_level_is_reported_as_its_mean_over_a_window() -> None:
    assert thinned(Thinning(window_s=3), *map(level, [1, 2, 6, 0, 0, 0, 9])) == [("load", 2, 3.0), ("load", 5, 0.0)]


def test_unchanged_counter_is_reported_once_a_minute() -> None:
    told = thinned(Thinning(window_s=5), *[counter(7)] * 131)
    assert [at for _, at, _ in told] == [4, 64, 124]


def test_changed_counter_is_reported_at_the_end_of_its_window() -> None:
    told = thinned(Thinning(window_s=5), *map(counter, [7, 7, 7, 7, 7, 7, 8, 9, 9, 9, 9]))
    assert told == [("errors", 4, 7.0), ("errors", 9, 9.0)]


def test_a_clock_that_is_set_back_ends_the_window() -> None:
    thinning = Thinning(window_s=5)
    thinned(thinning, level(1), level(3), first=100)
    assert thinned(thinning, level(9), first=2) == [("load", 101, 2.0)]


def test_every_reading_is_reported_when_the_window_is_zero() -> None:
    assert [value for _, _, value in thinned(Thinning(window_s=0), *map(counter, [1, 1, 1]))] == [1, 1, 1]


class Counting:
    """A sampler that counts its samples. ``fails`` maps the number of a sample to the error that it raises."""

    def __init__(self, name: str = "counting", fails: dict[int, Exception] | None = None) -> None:
        self.name = name
        self.looked = 0
        self.closed = threading.Event()
        self._fails = fails or {}

    def sample(self, at_ns: int) -> Sample:
        self.looked += 1
        if self.looked in self._fails:
            raise self._fails[self.looked]
        seen = Event(at_ns=at_ns, device="eth0", name="seen", text=str(self.looked))
        return Sample(readings=(counter(self.looked),), events=(seen,))

    def close(self) -> None:
        self.closed.set()


class Stuck:
    """A sampler whose driver never answers."""

    name = "stuck"

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def sample(self, at_ns: int) -> Sample:
        self.let_go.wait()
        return Sample()

    def close(self) -> None:
        pass


@pytest.fixture
def no_folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "spool"
    telemetry.stop()


def paced(sampler: Counting | Stuck) -> Paced:
    return Paced(sampler=sampler, interval_s=0.01, window_s=0)


def test_sampler_that_hangs_does_not_delay_other_samplers() -> None:
    stuck, other = Stuck(), Counting()
    watch = HostWatch([paced(stuck), paced(other)])
    watch.start()
    until(lambda: other.looked > 3, what="looks of the other sampler")
    stuck.let_go.set()
    watch.stop()
    assert len(watch.take()[1]) == other.looked


def test_sampler_is_closed_and_the_reason_printed_when_its_devices_are_gone(capsys: pytest.CaptureFixture[str]) -> None:
    gone = Counting(fails={3: GoneError("no GPU is left")})
    watch = HostWatch([paced(gone)])
    watch.start()
    until(gone.closed.is_set, what="the sampler's end")
    watch.stop()
    assert gone.looked == 3
    assert "no GPU is left" in capsys.readouterr().err


def test_sampling_continues_after_occasional_errors() -> None:
    shaky = Counting(fails={2: OSError("busy"), 3: OSError("busy"), 5: ValueError("torn")})
    watch = HostWatch([paced(shaky)])
    watch.start()
    until(lambda: shaky.looked > 8, what="looks")
    watch.stop()
    assert {"1", "4", "6"} <= {event.text for event in watch.take()[1]}


class Odd:
    """A sampler of a device whose name is not valid text."""

    name = "odd"

    def sample(self, at_ns: int) -> Sample:
        device = os.fsdecode(b"\xffeth")
        reading = Reading(metric="rdma-" + device, device=device, value=1.0, is_counter=True)
        return Sample(readings=(reading,), events=(Event(at_ns=at_ns, device=device, name="seen", text=device),))

    def close(self) -> None:
        pass


def test_invalid_bytes_of_a_device_name_are_stored_as_question_marks(no_folder: Path, embedded: EmbeddedStore) -> None:
    record_as(0, no_folder)
    watch = HostWatch([Paced(sampler=Odd(), interval_s=0.01, window_s=0)])
    reports = HostReports(watch, LivingRanks(), own_host="")
    with collecting(embedded) as client:
        agent = Agent(Host(no_folder), client, AgentSettings(spool=no_folder, collector=""), None, reports)
        agent.turn()
        watch.start()
        until(lambda: reports.take_in() or list(journal.read(no_folder / "run" / "0")), what="a look")
        watch.stop()
        agent.turn()
        assert set(client.read(HostEvents(**RUN))["device"].to_pylist()) == {"?eth"}
        assert set(client.read(HostSamples(**RUN))["metric"].to_pylist()) == {"rdma-?eth"}


def record_as(rank: int, spool: Path) -> None:
    telemetry.start(
        "run", topology=Topology(dp=2), rank=rank, local_rank=rank, host="gpu-07", attempt=0, spool=spool, agent=False
    )
    with telemetry.step(0):
        pass


class Scripted:
    """A watch that returns the events that a test sets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def take(self) -> tuple[list, list[Event]]:  # type: ignore[type-arg]
        seen, self.events = self.events, []
        return [], seen


def event(number: int) -> Event:
    return Event(at_ns=BEGAN_NS + number, device="eth0", name="link-down", text=f"{number} \N{SNOWMAN}\n")


def stored_events(client: CollectorClient) -> list[str]:
    return [row["text"] for row in client.read(HostEvents(run_id="run", attempt=0)).to_pylist()]


def test_host_samples_are_stored_under_the_host_name_of_the_ranks(no_folder: Path, embedded: EmbeddedStore) -> None:
    record_as(0, no_folder)
    sampler = Counting()
    with collecting(embedded) as client:
        watch, living = HostWatch([paced(sampler)]), LivingRanks()
        reports = HostReports(watch, living, own_host="another-name")
        agent = Agent(Host(no_folder), client, AgentSettings(spool=no_folder, collector=""), None, reports)
        watch.start()
        agent.turn()
        until(lambda: sampler.looked > 3, what="looks")
        watch.stop()
        reports.stop()
        agent.turn()
        samples = client.read(HostSamples(run_id="run", attempt=0, period_ns=1)).to_pylist()
        assert {row["host"] for row in samples} == {"gpu-07"}
        assert sorted(row["value"] for row in samples) == list(range(1, sampler.looked + 1))
        assert list(living.pids()) == [0]


def test_events_are_stored_once_when_the_store_fails_and_the_agent_is_replaced(
    no_folder: Path, embedded: EmbeddedStore
) -> None:
    record_as(0, no_folder)
    faulty = FaultyStore(embedded)
    with collecting(faulty) as client:
        settings = AgentSettings(spool=no_folder, collector="")
        watch = Scripted()
        reports = HostReports(watch, LivingRanks(), own_host="")  # type: ignore[arg-type]
        first = Agent(Host(no_folder), client, settings, None, reports)
        first.turn()
        watch.events = [event(1), event(2)]
        faulty.down = True
        reports.take_in()
        with pytest.raises(UnreachableError):
            first.turn()
        faulty.down = False
        assert stored_events(client) == []
        second = Agent(Host(no_folder), client, settings, None, HostReports(Scripted(), LivingRanks(), own_host=""))  # type: ignore[arg-type]
        second.turn()
        first.turn()
        assert stored_events(client) == [event(1).text, event(2).text]


def test_events_are_written_to_the_journal_without_an_agent_turn(no_folder: Path, embedded: EmbeddedStore) -> None:
    record_as(0, no_folder)
    watch = Scripted()
    reports = HostReports(watch, LivingRanks(), own_host="")  # type: ignore[arg-type]
    with collecting(embedded) as client:
        Agent(Host(no_folder), client, AgentSettings(spool=no_folder, collector=""), None, reports).turn()
    watch.events = [event(1)]
    reports.start()
    until(lambda: dict(journal.read(no_folder / "run" / "0")), what="the journal")
    reports.stop()


def test_events_that_still_hold_are_stored_for_a_job_that_starts_later(
    no_folder: Path, embedded: EmbeddedStore
) -> None:
    watch = Scripted()
    reports = HostReports(watch, LivingRanks(), own_host="")  # type: ignore[arg-type]
    told = [("eth0", "link-down"), ("eth1", "link-down"), ("eth1", "link-up"), ("gpu0", "gpu-seen"), ("", "oom-kill")]
    told += [("gpu0", "device-gone"), ("gpu1", "device-gone"), ("gpu1", "gpu-seen")]
    watch.events = [Event(at_ns=at, device=device, name=name, text="") for at, (device, name) in enumerate(told)]
    reports.take_in()
    record_as(0, no_folder)
    with collecting(embedded) as client:
        Agent(Host(no_folder), client, AgentSettings(spool=no_folder, collector=""), None, reports).turn()
        rows = client.read(HostEvents(run_id="run", attempt=0)).to_pylist()
    assert [(row["at_ns"], row["device"], row["name"]) for row in rows] == [
        (0, "eth0", "link-down"),
        (3, "gpu0", "gpu-seen"),
        (5, "gpu0", "device-gone"),
        (7, "gpu1", "gpu-seen"),
    ]


def test_host_rows_beyond_the_buffer_limit_are_counted_and_reported_as_lost(
    no_folder: Path, embedded: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host_reports, "MAX_EVENTS", 3)
    record_as(0, no_folder)
    watch = Scripted()
    reports = HostReports(watch, LivingRanks(), own_host="")  # type: ignore[arg-type]
    with collecting(embedded) as client:
        agent = Agent(Host(no_folder), client, AgentSettings(spool=no_folder, collector=""), None, reports)
        agent.turn()
        for number in range(5):
            watch.events = [event(number)]
            reports.take_in()
        agent.turn()
        agent.turn()
        assert stored_events(client) == [event(number).text for number in (2, 3, 4)]
    lost = "rankscope agent: the collector did not answer for a long time: 2 rows of this host for run run/0 are lost\n"
    assert capsys.readouterr().err == lost


def test_torn_line_of_a_killed_writer_does_not_spoil_other_journal_lines(tmp_path: Path) -> None:
    journal.append(tmp_path, "h", [event(1)])
    (path,) = (tmp_path / "hosts").iterdir()
    path.write_bytes(path.read_bytes() + b'{"at_ns": 3, "dev')
    journal.append(tmp_path, "h", [event(2)])
    assert list(journal.read(tmp_path)) == [("h", [event(1), event(2)])]


def test_journal_lines_with_values_that_no_store_accepts_are_skipped(tmp_path: Path) -> None:
    journal.append(tmp_path, "h", [event(1)])
    (path,) = (tmp_path / "hosts").iterdir()
    odd = ('Infinity, "text": ""', '1e300, "text": ""', '-1, "text": ""', '5, "text": "\\ud800"')
    lines = "".join(f'{{"device": "d", "name": "n", "at_ns": {one}}}\n' for one in odd)
    path.write_text(path.read_text() + lines)
    assert list(journal.read(tmp_path)) == [("h", [event(1)])]


def test_journal_that_is_not_a_regular_file_is_neither_written_nor_read(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    os.mkfifo(tmp_path / "hosts" / "pipe.jsonl")
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "hosts" / "link.jsonl").symlink_to(tmp_path / "elsewhere")
    for host in ("pipe", "link"):
        with pytest.raises(OSError, match=r"not a regular file|Too many levels|No such device"):
            journal.append(tmp_path, host, [event(1)])
    assert list(journal.read(tmp_path)) == []
    assert (tmp_path / "elsewhere").read_text() == ""


def test_only_one_file_of_a_large_journal_is_in_memory(tmp_path: Path) -> None:
    for host in range(12):
        journal.append(tmp_path, f"h{host:02d}", [event(host)])
    for path in (tmp_path / "hosts").iterdir():
        os.truncate(path, journal.MAX_BYTES)
    tracemalloc.start()
    hosts = [host for host, _ in journal.read(tmp_path)]
    assert journal.read_host(tmp_path, "h11") == [event(11)]
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert hosts == ["h00", "h01"]
    assert most_bytes < 6 * journal.MAX_BYTES


def test_journal_read_is_limited_to_max_files_and_to_the_newest_events_of_each_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in ("a", "b", "c"):
        journal.append(tmp_path, host, [event(1), event(2), event(3)])
    monkeypatch.setattr(journal, "MAX_FILES", 2)
    monkeypatch.setattr(journal, "MAX_EVENTS", 2)
    assert list(journal.read(tmp_path)) == [("a", [event(2), event(3)]), ("b", [event(2), event(3)])]


def test_agent_continues_and_prints_the_error_when_the_collector_has_no_host_tables(
    no_folder: Path, embedded: EmbeddedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    record_as(0, no_folder)
    watch = Scripted()
    reports = HostReports(watch, LivingRanks(), own_host="")  # type: ignore[arg-type]
    with collecting(embedded) as client:
        agent = Agent(Host(no_folder), _Older(client), AgentSettings(spool=no_folder, collector=""), None, reports)
        agent.turn()
        watch.events = [event(1)]
        reports.take_in()
        agent.turn()
        assert client.read(Ranks(run_id="run", attempt=0)).num_rows == 1
    assert "unknown table" in capsys.readouterr().err


class _Older:
    """A collector of an older version without host tables."""

    def __init__(self, client: CollectorClient) -> None:
        self._client = client

    def post(self, table: str, rows: pa.Table) -> Ack:
        if table.startswith("host"):
            raise UsageError(f"unknown table {table!r}", hint="tables are spans, marks")
        return self._client.post(table, rows)


def test_journal_read_skips_torn_and_invalid_lines(tmp_path: Path) -> None:
    journal.append(tmp_path, "odd/host", [event(1), event(2)])
    (path,) = (tmp_path / "hosts").iterdir()
    path.write_bytes(path.read_bytes() + b'{"at_ns": 3, "dev\xff\n[1, 2]\nnull\n' + b"[" * 100_000)
    assert list(journal.read(tmp_path)) == [("odd/host", [event(1), event(2)])]
