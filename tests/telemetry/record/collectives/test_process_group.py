"""Traced process groups record every collective and change none."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel

import telemetry
from telemetry.record.collectives import process_group
from telemetry.record.collectives.process_group import OPERATIONS, describe_transfer, register_traced_backend
from telemetry.record.collectives.stage_names import Operation, place_of, transfer_stage
from telemetry.record.collectives.traced_work import follow
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.telemetry.grid_training import GRID, MICROBATCHES, STEPS
from tests.telemetry.record.collectives.two_ranks import two_ranks
from tests.telemetry.recording import Recorded, recorded

pytestmark = pytest.mark.gloo
# Names that changed between torch 2.11 and 2.13.
GATHER_SINGLE = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
REDUCE_SCATTER_SINGLE = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def test_losses_are_bit_identical_with_tracing(losses: dict[bool, tuple[Path, list[list[float]]]]) -> None:
    assert losses[True][1] == losses[False][1]
    assert losses[True][1][0][-1] < losses[True][1][0][0]


def test_every_rank_records_the_operations_of_all_its_axes(grid: list[Recorded]) -> None:
    shared = {"tp-all-gather", "tp-reduce-scatter", "params-all-gather", "grads-reduce-scatter"}
    for rank, found in enumerate(grid):
        first = GRID.place(rank).pp == 0
        transfers = {"forward-send", "backward-recv"} if first else {"forward-recv", "backward-send"}
        others = {"step", "forward-compute", "backward-compute", "communication-wait"}
        assert set(found.stages) - others == shared | transfers


def test_forward_sends_of_all_microbatches_are_recorded(grid: list[Recorded]) -> None:
    spans = grid[0].spans
    sends = spans[(spans["stage"] == Stage.FORWARD_SEND) & (spans["size_bytes"] > 0)]
    assert len(sends) >= STEPS * MICROBATCHES
    assert set(sends["peer"].tolist()) == {2}


def test_group_members_give_an_operation_the_same_sequence_number(grid: list[Recorded]) -> None:
    collectives = (Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER)
    for axis in ("tp", "dp"):
        for group in GRID.groups(along=axis):
            stages = [one for one in collectives if (one.stream.label == axis)]
            ours, theirs = (_numbered(grid[rank], stages) for rank in group)
            assert ours == theirs
            assert ours


def test_send_and_its_receive_have_the_same_sequence_number(grid: list[Recorded]) -> None:
    for sender, receiver in GRID.groups(along="pp"):
        for send, recv in ((Stage.FORWARD_SEND, Stage.FORWARD_RECV), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV)):
            one, other = (sender, receiver) if send is Stage.FORWARD_SEND else (receiver, sender)
            assert [n for n, _ in _numbered(grid[one], [send])] == [n for n, _ in _numbered(grid[other], [recv])]


def test_spans_belong_to_the_step_that_issued_them(grid: list[Recorded]) -> None:
    spans = grid[5].spans
    per_step = Counter(spans[spans["stage"] == Stage.GRADS_REDUCE_SCATTER]["step"].tolist())
    assert len(set(per_step.values())) == 1
    assert set(per_step) == set(range(STEPS))


def test_state_page_shows_issued_and_completed_operations_of_each_group(grid: list[Recorded]) -> None:
    operations = grid[0].reader.live().operations
    assert {GRID.axes_of(one.mask) for one in operations} == {("tp",), ("dp",), ("pp",), ("dp", "pp", "tp")}
    assert all(one.issued == one.completed > 0 for one in operations)


def _numbered(found: Recorded, stages: list[Stage]) -> list[tuple[int, int]]:
    spans = found.spans[[int(code) in stages for code in found.spans["stage"]]]
    return sorted(zip(spans["op_seq"].tolist(), spans["stage"].tolist(), strict=True))


# Two ranks, every operation that torch.distributed offers.


def _every_operation(rank: int) -> None:
    ones, pair = torch.ones(4), torch.zeros(8)
    dist.all_reduce(ones)
    assert ones.tolist() == [2.0] * 4
    dist.all_gather([torch.zeros(4), torch.zeros(4)], ones)
    GATHER_SINGLE(pair, ones)
    assert pair.tolist() == [2.0] * 8
    REDUCE_SCATTER_SINGLE(ones, pair)
    assert ones.tolist() == [4.0] * 4
    work = dist.all_reduce(ones, async_op=True)
    assert work is not None
    work.wait()
    assert work.is_completed()
    dist.all_reduce(torch.eye(4).to_sparse())
    dist.broadcast(ones, src=0)
    dist.reduce(ones, dst=0)
    dist.gather(ones, [torch.zeros(4), torch.zeros(4)] if rank == 0 else None)
    dist.scatter(ones, [ones.clone(), ones.clone()] if rank == 0 else None)
    dist.all_to_all_single(torch.zeros(4), ones)
    sent, received = ([1, 3], [1, 5]) if rank == 0 else ([5, 2], [3, 2])
    dist.all_to_all_single(torch.zeros(sum(received)), torch.ones(sum(sent)), received, sent)
    dist.barrier()
    transfers = [dist.P2POp(dist.isend, ones, 1 - rank), dist.P2POp(dist.irecv, torch.zeros(4), 1 - rank)]
    for work in dist.batch_isend_irecv(transfers):
        work.wait()
    words: list[object] = ["from rank 0" if rank == 0 else None]
    dist.broadcast_object_list(words, src=0)
    assert words == ["from rank 0"]
    nested = dist.new_group([0, 1])
    dist.all_reduce(ones, group=nested)
    with dist._coalescing_manager(group=nested, async_ops=False):
        dist.all_reduce(torch.ones(2), group=nested)
        dist.all_reduce(torch.ones(3), group=nested)


def test_every_operation_works_and_operations_with_a_stage_are_recorded_as_spans(tmp_path: Path) -> None:
    two_ranks(_every_operation, tmp_path, grid=Topology(dp=2))
    counts = Counter(recorded(tmp_path, 1).stages)
    assert counts["params-all-gather"] >= 2
    assert counts["grads-reduce-scatter"] == 1
    assert counts["grads-all-reduce"] >= 4
    spans = recorded(tmp_path, 1).spans
    received = spans[spans["stage"] == Stage.EP_ALL_TO_ALL]["size_bytes"]
    assert received.tolist() == [4 * 4, 5 * 4]  # it sends seven numbers, and receives five
    assert 0 in spans[spans["stage"] == Stage.GRADS_ALL_REDUCE]["size_bytes"]  # the sparse one


def _ddp(rank: int) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 1))
    for number in range(4):
        with telemetry.step(number):
            model(torch.full((2, 8), float(rank))).sum().backward()
    weight = model.module.weight.grad
    assert weight is not None
    assert weight.flatten().tolist() == [4.0] * 8


def test_ddp_gradient_reductions_issued_from_cpp_are_recorded(tmp_path: Path) -> None:
    two_ranks(_ddp, tmp_path, grid=Topology(dp=2))
    spans = recorded(tmp_path, 0).spans
    reduced = spans[spans["stage"] == Stage.GRADS_ALL_REDUCE]
    assert set(reduced["step"].tolist()) == {0, 1, 2, 3}


def _described_transfers(rank: int) -> None:
    tensor = torch.full((3,), float(rank))
    if rank == 0:
        describe_transfer(tensor, Stage.FORWARD_RECV, microbatch=2, chunk=1)
        dist.recv(tensor, src=1)
        dist.recv(tensor, src=1)
    else:
        describe_transfer(tensor, Stage.FORWARD_SEND, microbatch=2, chunk=1)
        dist.send(tensor, dst=0)
        dist.send(tensor, dst=0)


def test_transfer_description_applies_only_to_the_next_transfer(tmp_path: Path) -> None:
    """Rank 1 sends forward to rank 0, as in an interleaved schedule. The ranks alone do not show this direction."""
    two_ranks(_described_transfers, tmp_path, grid=Topology(pp=2))
    for rank, stages in ((0, ["forward-recv", "backward-recv"]), (1, ["forward-send", "backward-send"])):
        found = recorded(tmp_path, rank)
        transfers = found.spans[~np.isin(found.spans["stage"], (Stage.GC, Stage.COMMUNICATION_WAIT))]
        assert [Stage(int(code)).label for code in transfers["stage"]] == stages  # type: ignore[call-arg]
        assert (transfers["microbatch"][0], transfers["chunk"][0]) == (2, 1)


def _telemetry_breaks(rank: int) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(f"{name} is broken")

    process_group.OPERATIONS._recorder = Broken()  # type: ignore[assignment]
    _every_operation(rank)


def test_operations_work_when_the_recorder_is_broken(tmp_path: Path) -> None:
    two_ranks(_telemetry_breaks, tmp_path, grid=Topology(dp=2))
    assert recorded(tmp_path, 0).stages == []


# Which stage an operation is: pure functions.


def test_purpose_of_a_group_is_the_axis_that_its_ranks_span() -> None:
    big = Topology(dp=2, pp=4, tp=2)
    assert place_of((0, 1), "", big).purpose == "tp"
    assert place_of((0, 2, 4, 6), "", big).purpose == "pp"
    assert place_of((1, 9), "", big).purpose == "dp"
    assert place_of(tuple(range(16)), "", big).purpose is None
    assert place_of((3,), "", big).purpose is None
    assert place_of((0, 99), "", big).purpose is None
    assert place_of((0, 1, 2), "", Topology(dp=3)).purpose == "dp"


def test_collective_has_a_stage_only_if_its_operation_and_axis_are_known() -> None:
    big = Topology(dp=2, pp=4, tp=2)
    tensor, pipeline, data, everyone = (0, 1), (0, 2, 4, 6), (1, 9), tuple(range(16))
    assert place_of(data, "", big).collective_stage(Operation.ALL_GATHER) is Stage.PARAMS_ALL_GATHER
    assert place_of(tensor, "", big).collective_stage(Operation.OTHER) is None
    assert place_of(pipeline, "", big).collective_stage(Operation.ALL_REDUCE) is None
    assert place_of(everyone, "", big).collective_stage(Operation.ALL_REDUCE) is None


@each_case(
    ("index", "peer", "size", "sends", "stage"),
    [
        (1, 2, 4, True, Stage.FORWARD_SEND),
        (1, 0, 4, True, Stage.BACKWARD_SEND),
        (1, 0, 4, False, Stage.FORWARD_RECV),
        (1, 2, 4, False, Stage.BACKWARD_RECV),
        (3, 0, 4, True, Stage.FORWARD_SEND),
        (0, 3, 4, False, Stage.FORWARD_RECV),
        (0, 3, 4, True, Stage.BACKWARD_SEND),
        (3, 0, 4, False, Stage.BACKWARD_RECV),
        (0, 1, 2, True, Stage.FORWARD_SEND),
        (1, 0, 2, True, Stage.BACKWARD_SEND),
    ],
)
def test_transfer_stage_follows_from_the_pipeline_positions_of_both_ranks(
    index: int, peer: int, size: int, sends: bool, stage: Stage
) -> None:
    assert transfer_stage(index, peer, size, sends=sends) is stage


def _calls_raise(folder: Path, rank: int) -> None:
    """Calls with wrong shapes raise on both ranks while an earlier operation is pending."""

    def shown() -> list[tuple[Stage | None, int, int]]:
        operations = recorded(folder, rank).reader.live().operations
        return [(each.stage, each.issued, each.size_bytes) for each in operations if each.issued]

    first = dist.all_reduce(torch.ones(4), async_op=True)
    assert first is not None
    before = shown()
    assert before == [(Stage.TP_ALL_REDUCE, 1, 16)]
    with pytest.raises((RuntimeError, ValueError)):
        GATHER_SINGLE(torch.zeros(3), torch.ones(4))
    with pytest.raises((RuntimeError, ValueError)):
        dist.group.WORLD.send([torch.ones(2), torch.ones(2)], 1 - rank, 0)
    assert shown() == before
    first.wait()
    GATHER_SINGLE(torch.zeros(8), torch.ones(4))


def test_operation_whose_call_raises_is_not_counted_as_issued(tmp_path: Path) -> None:
    two_ranks(partial(_calls_raise, tmp_path), tmp_path, grid=Topology(tp=2))
    found = recorded(tmp_path)
    spans = found.spans
    assert spans[spans["stage"] == Stage.TP_ALL_GATHER]["op_seq"].tolist() == [2]
    assert all(each.issued == each.completed for each in found.reader.live().operations)


def test_plain_backend_is_used_when_torch_lacks_the_function_to_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(distributed_c10d, "_new_process_group_helper")
    assert register_traced_backend("gloo") == "gloo"


class _CompletedBeforeItsCallbacks(dist.Work):
    """DDP may leave such a work: it continues when the future is set, before the callbacks have run."""

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> "torch.futures.Future[Any]":
        return torch.futures.Future()


def test_completed_operation_is_recorded_when_the_session_ends_before_its_callbacks_run(
    tmp_path: Path,
) -> None:
    telemetry.start("late", spool=tmp_path, topology=Topology(dp=2), rank=0, agent=False)
    line = OPERATIONS.line((0, 1), 1)
    flight = OPERATIONS.issue(line, Stage.GRADS_ALL_REDUCE, 64)
    follow(_CompletedBeforeItsCallbacks(), [flight], OPERATIONS).get_future()
    telemetry.stop()
    assert recorded(tmp_path).stages.count("grads-all-reduce") == 1
