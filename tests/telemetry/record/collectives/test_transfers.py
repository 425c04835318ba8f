"""On a device, a span ends when its transfer ends. An operation completes when the device has finished it."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from weakref import ref

import pytest
import torch
import torch.distributed as dist

import telemetry
from telemetry.record.collectives import process_group
from telemetry.record.collectives.process_group import TracedGroup
from telemetry.record.collectives.traced_work import StreamPool, Transfers
from telemetry.record.state_page import Operation
from telemetry.stages import SpanClock, Stage
from telemetry.topology import Topology
from tests.deadline import until
from tests.telemetry.record.collectives.streamed_nccl import STREAMS, NcclGroup, StreamedClock, StreamedCuda
from tests.telemetry.recording import recorded

MS = 1_000_000
TRANSFER_NS = 10 * MS
OTHER_RANK = 1


@dataclass
class Device:
    folder: Path
    cuda: StreamedCuda
    clock: StreamedClock
    nccl: NcclGroup
    group: TracedGroup

    def all_reduce(self, *, async_op: bool = True) -> dist.Work | None:
        options = dist.AllreduceOptions()
        options.asyncOp = async_op
        work: dist.Work | None = self.group.allreduce([torch.ones(4)], options)
        return work

    def catch_up(self) -> None:
        """Advance the time until the device has finished all its work and every span is recorded."""
        self.cuda.now_ns += 10_000 * MS
        until(lambda: not self.clock.pending(), every=0.001)

    def spans(self, stage: Stage = Stage.TP_ALL_REDUCE) -> list[tuple[int, int]]:
        """Start and duration."""
        self.catch_up()
        telemetry.stop()
        found = recorded(self.folder).spans
        own = found[found["stage"] == stage]
        return list(zip(own["start_ns"].tolist(), own["duration_ns"].tolist(), strict=True))

    def page(self) -> tuple[Operation, ...]:
        return recorded(self.folder).reader.live().operations


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    cuda = StreamedCuda()
    clock = StreamedClock(cuda)
    monkeypatch.setattr("telemetry.record.clocks.drain.open_device_clock", lambda *_: clock)
    monkeypatch.setattr(process_group, "cuda_device", lambda arguments: 0)
    monkeypatch.setattr(process_group.OPERATIONS, "_lines", {})
    telemetry.start("device", topology=Topology(tp=2), rank=0, spool=tmp_path, agent=False, device="cuda")
    nccl = NcclGroup(cuda, transfer_ns=TRANSFER_NS)
    group = TracedGroup(nccl, (0, 1), Transfers(cuda=cuda))  # type: ignore[arg-type]
    yield Device(tmp_path, cuda, clock, nccl, group)
    cuda.now_ns += 10**15
    telemetry.stop()


@pytest.mark.parametrize("before_ms", [0, 7])
@pytest.mark.parametrize("after_ms", [0, 3, 400])
def test_asynchronous_transfer_span_excludes_the_surrounding_compute(
    device: Device, before_ms: int, after_ms: int
) -> None:
    device.cuda.compute(before_ms * MS)
    work = device.all_reduce()
    assert work is not None
    device.cuda.compute(after_ms * MS)
    work.wait()
    ((start_ns, duration_ns),) = device.spans()
    assert duration_ns == pytest.approx(TRANSFER_NS, rel=0.01)
    assert start_ns == 1 * MS + before_ms * MS
    assert [span.clock for span in device.clock.ended] == [SpanClock.TRANSFER]


def test_transfer_starts_when_the_previous_transfer_of_its_communicator_has_ended(device: Device) -> None:
    works = [device.all_reduce() for _ in range(3)]
    device.cuda.compute(5 * MS)
    for work in works:
        assert work is not None
        work.wait()
    assert device.spans() == [(MS + number * TRANSFER_NS, TRANSFER_NS) for number in range(3)]


def test_a_synchronous_transfer_ends_on_the_current_stream(device: Device) -> None:
    assert device.all_reduce(async_op=False) is None
    device.cuda.compute(50 * MS)
    assert device.spans() == [(MS, TRANSFER_NS)]


def test_single_send_is_measured_on_the_stream_of_its_rank_pair(device: Device) -> None:
    device.all_reduce()
    device.nccl.transfer_ns = 2 * MS
    process_group.describe_transfer(tensor := torch.ones(2), Stage.FORWARD_SEND)
    work = device.group.send([tensor], OTHER_RANK)
    device.cuda.compute(30 * MS)
    work.wait()
    assert device.spans(Stage.FORWARD_SEND) == [(MS, 2 * MS)]


def test_transfers_in_a_batch_end_together(device: Device) -> None:
    on = torch.device("cuda", 0)
    device.group._start_coalescing(on)
    for call in (device.group.send, device.group.recv):
        process_group.describe_transfer(tensor := torch.ones(2), Stage.FORWARD_SEND)
        assert call([tensor], OTHER_RANK) is None
    work = device.group._end_coalescing(on)
    device.cuda.compute(30 * MS)
    work.wait()
    assert device.spans(Stage.FORWARD_SEND) == [(MS, TRANSFER_NS)] * 2


def test_span_ends_at_the_wait_when_the_transfer_stream_is_uncertain(device: Device) -> None:
    """Another thread takes a stream while the communicator is created. The clock of the span is DEVICE."""
    device.nccl.meanwhile = device.cuda.Stream
    work = device.all_reduce()
    device.cuda.compute(30 * MS)
    assert work is not None
    work.wait()
    assert device.spans() == [(MS, 30 * MS)]
    assert [span.clock for span in device.clock.ended] == [SpanClock.DEVICE]


def test_program_gets_the_same_streams_with_and_without_tracing(device: Device) -> None:
    untraced = StreamedCuda()
    plain = NcclGroup(untraced, transfer_ns=TRANSFER_NS)
    plain.allreduce([], dist.AllreduceOptions())
    plain.send([], OTHER_RANK, 0)
    device.all_reduce()
    device.group.send([torch.ones(2)], OTHER_RANK)
    device.all_reduce()
    assert device.cuda.Stream().stream_id == untraced.Stream().stream_id


def test_stream_of_a_device_bound_group_is_found_at_group_creation() -> None:
    cuda = StreamedCuda()
    transfers = Transfers(cuda=cuda)
    noted = transfers.before(None, 0, early=True)
    own = cuda.Stream()
    assert transfers.after(None, 0, noted, early=True) is own
    noted = transfers.before(OTHER_RANK, 0)  # here torch sends through the communicator of the group
    assert transfers.after(OTHER_RANK, 0, noted) is own


def test_stream_pool_reports_the_streams_that_others_have_taken() -> None:
    cuda = StreamedCuda()
    pool = StreamPool(cuda.Stream)
    for count in (0, 1, 5, STREAMS - 2):
        noted = pool.note()
        drawn = [cuda.Stream() for _ in range(count)]
        assert pool.taken_since(noted) == drawn


def test_state_page_shows_an_operation_as_completed_when_the_device_has_finished_it(device: Device) -> None:
    """This holds also for a barrier, which has no stage. The host waits for neither operation."""
    device.all_reduce(async_op=False)
    device.group.barrier(dist.BarrierOptions())
    (shown,) = device.page()
    assert (shown.issued, shown.completed) == (2, 0)
    device.cuda.now_ns += TRANSFER_NS
    until(lambda: device.page()[0].completed == 1, every=0.001)
    device.catch_up()
    until(lambda: device.page()[0].completed == 2, every=0.001)


def test_operation_whose_call_raises_is_not_counted_as_issued_and_takes_no_stream(device: Device) -> None:
    on, untraced = torch.device("cuda", 0), StreamedCuda()
    device.nccl.refusal = ValueError("wrong shapes")
    for call in (device.all_reduce, lambda: device.group.send([torch.ones(2)], OTHER_RANK)):
        with pytest.raises(ValueError, match="wrong shapes"):
            call()
    assert device.cuda.Stream().stream_id == untraced.Stream().stream_id
    device.nccl.refusal = None
    device.group._start_coalescing(on)
    device.group.send([torch.ones(2)], OTHER_RANK)
    device.group._start_coalescing(on)  # an error has left the first batch
    device.group.send([torch.ones(2)], OTHER_RANK)
    device.group._end_coalescing(on)
    assert device.all_reduce(async_op=False) is None
    assert [shown.issued for shown in device.page()] == [1, 1]
    assert device.spans() == [(MS, TRANSFER_NS)]


def test_operation_that_raises_a_backend_error_stays_pending(device: Device) -> None:
    device.nccl.refusal = dist.DistBackendError("a peer is gone")
    with pytest.raises(dist.DistBackendError):
        device.all_reduce()
    (shown,) = device.page()
    assert (shown.issued, shown.completed) == (1, 0)


def test_work_is_freed_when_the_caller_drops_it(device: Device) -> None:
    """A work keeps the outputs of its operation in memory."""
    work = ref(device.all_reduce())
    gc.collect()
    assert work() is None
