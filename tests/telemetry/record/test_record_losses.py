"""The rank deletes segments while the agent ships: each record is either stored or reported as lost, never both."""

import random
import re
from pathlib import Path

import pytest

from telemetry.agent.tail import Chunk, RankTail
from telemetry.record.rank_identity import write_identity
from telemetry.record.reader import RankReader
from telemetry.record.recorder import Recorder
from telemetry.record.shipping_page import LossCause, ShippingPage
from telemetry.records import RECORDS_LOST, RankIdentity
from telemetry.topology import Topology
from tests.integration.chaos.small_disk import small_disk
from tests.parts import require_root
from tests.telemetry.recording import SMALL, attach, record

SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 40))]
IDENTITY = RankIdentity(
    run_id="run", attempt=0, rank=0, host="host", local_rank=0, pid=1, topology=Topology(), started_ns=1
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "0" / "rank-00000"
    write_identity(made, IDENTITY)
    return made


class Shipped:
    """What several agents sent to a store. Spans that the store already has are ignored."""

    def __init__(self) -> None:
        self.spans: list[int] = []
        self.lost: dict[int, tuple[int, str]] = {}
        """Number of lost records and cause, by the sequence number of the mark."""

    def take(self, chunk: Chunk) -> None:
        spans = chunk.tables["spans"]["seq"].to_pylist()
        self.spans += [seq for seq in spans if not self.spans or seq > self.spans[-1]]
        for mark in chunk.tables["marks"].to_pylist() if "marks" in chunk.tables else []:
            assert mark["name"] == RECORDS_LOST
            count, why = re.fullmatch(r"(\d+) records of [\d.]+ s: (.*)", mark["text"]).groups()  # type: ignore[union-attr]
            self.lost.setdefault(mark["seq"], (int(count), why))

    @property
    def num_lost(self) -> int:
        return sum(count for count, _ in self.lost.values())

    def drain(self, tail: RankTail) -> None:
        while chunk := tail.read():
            self.take(chunk)
            tail.shipped(chunk)

    def assert_exact(self, num_recorded: int) -> None:
        """Each sequence number is either stored or reported as lost, and not both."""
        gone = [seq for end, (count, _) in self.lost.items() for seq in range(end + 1 - count, end + 1)]
        assert sorted(self.spans + gone) == list(range(num_recorded))


def test_segment_in_flight_is_kept_and_later_segments_are_deleted(recorder: Recorder, folder: Path) -> None:
    sink, shipped = attach(recorder, folder), Shipped()
    record(recorder, SMALL)
    tail = RankTail(folder)
    sent = tail.read()
    assert sent is not None
    record(recorder, 9 * SMALL)
    assert [path.name for path in sorted(folder.glob("*.rec"))] == ["000000.rec", *(f"{n:06d}.rec" for n in (7, 8, 9))]
    shipped.take(sent)
    tail.shipped(sent)
    shipped.drain(tail)
    shipped.assert_exact(10 * SMALL)
    assert shipped.num_lost == sink.dropped == 6 * SMALL


def test_records_stored_by_a_killed_agent_are_not_reported_as_lost(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    shipped = Shipped()
    record(recorder, SMALL + 3)
    sent = RankTail(folder).read()
    assert sent is not None
    shipped.take(sent)  # stored, but never acknowledged
    record(recorder, 9 * SMALL)
    shipped.drain(RankTail(folder))
    shipped.assert_exact(10 * SMALL + 3)
    assert shipped.num_lost


def test_acknowledging_a_small_batch_keeps_an_earlier_large_batch_in_flight(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    shipped = Shipped()
    record(recorder, SMALL)
    large = RankTail(folder).read()
    assert large is not None
    shipped.take(large)  # stored, but never acknowledged
    tail = RankTail(folder)
    small = tail.read(3)
    assert small is not None
    tail.shipped(small)
    record(recorder, 9 * SMALL)
    shipped.drain(tail)
    shipped.assert_exact(10 * SMALL)
    assert shipped.num_lost


def test_segment_that_the_agent_reads_during_its_deletion_is_kept(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, shipped = attach(recorder, folder), Shipped()
    record(recorder, 4 * SMALL)
    tail, sent, looks = RankTail(folder), [], []
    look = ShippingPage.in_flight

    def reads_after_the_first_look(page: ShippingPage, first_seq: int, end_seq: int) -> bool:
        in_flight = look(page, first_seq, end_seq)
        if not looks:
            looks.append(in_flight)
            sent.append(tail.read())
        return in_flight

    monkeypatch.setattr(ShippingPage, "in_flight", reads_after_the_first_look)
    record(recorder, SMALL)
    assert looks == [False]
    assert sent[0] is not None
    assert (folder / "000000.rec").exists()
    shipped.take(sent[0])
    tail.shipped(sent[0])
    shipped.drain(tail)
    shipped.assert_exact(5 * SMALL)
    assert shipped.num_lost == sink.dropped == SMALL


def test_segment_taken_back_during_its_deletion_is_kept_and_not_counted_as_lost(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, shipped, reader = attach(recorder, folder), Shipped(), RankReader(folder)
    lose = ShippingPage.lose

    def takes_back_the_first(page: ShippingPage, end_seq: int, cause: LossCause) -> None:
        lose(page, end_seq, cause)
        if end_seq == SMALL:
            assert reader.take_back()

    monkeypatch.setattr(ShippingPage, "lose", takes_back_the_first)
    record(recorder, 5 * SMALL)
    assert (folder / "000000.rec").exists()
    shipped.drain(RankTail(folder))
    shipped.assert_exact(5 * SMALL)
    assert shipped.num_lost == sink.dropped == SMALL


def test_batch_is_in_flight_when_the_segment_before_it_is_deleted_during_the_read(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, shipped = attach(recorder, folder), Shipped()
    record(recorder, 4 * SMALL)
    first_end, looks = RankReader.first_end, []

    def goes_after_the_first_look(reader: RankReader, from_seq: int) -> int:
        end = first_end(reader, from_seq)
        if not looks:
            looks.append(end)
            record(recorder, 2 * SMALL)
        return end

    monkeypatch.setattr(RankReader, "first_end", goes_after_the_first_look)
    tail = RankTail(folder)
    sent = tail.read()
    assert sent is not None
    shipped.take(sent)
    record(recorder, 4 * SMALL)
    shipped.drain(RankTail(folder))
    shipped.assert_exact(10 * SMALL)
    assert shipped.num_lost == sink.dropped


@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_stored_or_reported_as_lost_under_random_interruptions(
    recorder: Recorder, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, shipped, calls, unnumbered = random.Random(seed), Shipped(), 0, 0
    tails = [RankTail(folder)]
    look = ShippingPage.in_flight

    def act() -> None:
        """One random action of the agent. It may be replaced by a new agent. Then it reads a batch, which may be
        stored, and which the store may acknowledge."""
        if chance.random() < 0.1:
            tails[0] = RankTail(folder)
        chunk = tails[0].read(chance.choice((5, 100)))
        if chunk is not None and chance.random() < 0.6:
            shipped.take(chunk)
            if chance.random() < 0.7:
                tails[0].shipped(chunk)

    def interrupted(page: ShippingPage, first_seq: int, end_seq: int) -> bool:
        if chance.random() < 0.3:
            act()
        in_flight = look(page, first_seq, end_seq)
        if chance.random() < 0.3:
            act()
        return in_flight

    monkeypatch.setattr(ShippingPage, "in_flight", interrupted)
    sink = attach(recorder, folder, max_segments=chance.choice((3, 4, 6)))
    for _ in range(30):
        count = chance.randint(1, 2 * SMALL)
        record(recorder, count)
        calls += count
        if chance.random() < 0.5:
            act()
        if chance.random() < 0.1:  # the rank is killed and restarted in the same folder
            unnumbered += recorder.dropped() - sink.dropped
            recorder.detach()
            sink = attach(recorder, folder, max_segments=4)
    monkeypatch.undo()
    shipped.drain(RankTail(folder))
    shipped.assert_exact(recorder.next_seq())
    assert recorder.next_seq() + unnumbered + recorder.dropped() - sink.dropped == calls


def test_loss_mark_states_the_position_and_the_cause_of_the_loss(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, 10 * SMALL)
    chunk = RankTail(folder).read()
    assert chunk is not None
    (mark,) = chunk.tables["marks"].to_pylist()
    assert (mark["seq"], mark["name"]) == (6 * SMALL - 1, RECORDS_LOST)
    assert mark["text"].endswith("rank files reached their size limit before the collector stored these records")
    assert mark["at_ns"] <= chunk.tables["spans"]["start_ns"][0].as_py()


def test_deleted_segment_file_is_reported_as_damaged_or_deleted(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, 2 * SMALL)
    (folder / "000000.rec").unlink()
    shipped = Shipped()
    shipped.drain(RankTail(folder))
    assert shipped.lost == {SMALL - 1: (SMALL, "their file was damaged or deleted")}


def test_no_record_is_lost_when_the_rank_is_killed_during_a_segment_deletion(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, 3 * SMALL)
    (folder / "000000.rec").rename(folder / "000000.rec.gone")
    shipped = Shipped()
    shipped.drain(RankTail(folder))
    shipped.assert_exact(3 * SMALL)
    assert not shipped.lost


def test_read_only_tail_does_not_change_the_shipping_page(recorder: Recorder, folder: Path) -> None:
    attach(recorder, folder)
    record(recorder, SMALL)
    before = (folder / "shipping").read_bytes()
    assert RankTail(folder, from_seq=0).read() is not None
    assert (folder / "shipping").read_bytes() == before


def test_the_agent_acknowledges_on_a_full_disk(recorder: Recorder, tmp_path: Path) -> None:
    require_root("mounts a small file system")
    with small_disk(tmp_path, size_mib=1) as disk:
        folder = tmp_path / "run" / "0" / "rank-00000"
        write_identity(folder, IDENTITY)
        sink, shipped = attach(recorder, folder, max_segments=1000), Shipped()
        record(recorder, 3 * SMALL)
        disk.fill()
        record(recorder, 5 * SMALL)
        shipped.drain(RankTail(folder))
        assert RankReader(folder).acked() == 8 * SMALL
        shipped.assert_exact(8 * SMALL)
        assert shipped.num_lost == sink.dropped > 0
        assert {why for _, why in shipped.lost.values()} == {
            "the disk was full before the collector stored these records"
        }
