"""Schedules: each microbatch once forward and once backward, in a valid order, with the idle time of the formula."""

import numpy as np
import pytest

from diagnose.model.operations import Operations
from diagnose.simulate.run import simulate
from diagnose.simulate.schedule import Layout, order
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import only, plan
from tests.each_case import each_case

LAYOUTS = [
    (1, 1, 3),
    (2, 1, 1),
    (2, 1, 4),
    (4, 1, 4),
    (4, 1, 8),
    (8, 1, 3),
    (2, 2, 4),
    (4, 2, 4),
    (4, 3, 8),
    (8, 6, 16),
]
"""pp, chunks, microbatches."""
LETTERS = {(Stage.FORWARD_COMPUTE, 0): "F", (Stage.FORWARD_COMPUTE, 1): "f"} | {
    (Stage.BACKWARD_COMPUTE, 0): "B",
    (Stage.BACKWARD_COMPUTE, 1): "b",
}


def layout(pp: int, num_chunks: int, num_microbatches: int) -> Layout:
    return Layout(pp=pp, dp=1, num_chunks=num_chunks, num_microbatches=num_microbatches)


def text(pp: int, of: Layout) -> str:
    return " ".join(f"{LETTERS[one.stage, one.chunk]}{one.microbatch}" for one in order(of, pp))


@each_case("shape", LAYOUTS)
def test_every_microbatch_passes_every_chunk_once_forward_then_once_backward(shape: tuple[int, int, int]) -> None:
    pp, num_chunks, num_microbatches = shape
    every = [(chunk, microbatch) for chunk in range(num_chunks) for microbatch in range(num_microbatches)]
    for rank in range(pp):
        place = {(one.stage, one.chunk, one.microbatch): at for at, one in enumerate(order(layout(*shape), rank))}
        assert len(place) == len(order(layout(*shape), rank)) == 2 * len(every)
        for one in every:
            assert place[Stage.FORWARD_COMPUTE, *one] < place[Stage.BACKWARD_COMPUTE, *one]


def test_one_forward_one_backward_schedule_has_the_order_of_the_timeline() -> None:
    assert text(0, layout(4, 1, 4)) == "F0 F1 F2 F3 B0 B1 B2 B3"
    assert text(1, layout(4, 1, 4)) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert text(3, layout(4, 1, 4)) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_interleaved_schedule_has_the_order_of_the_timeline() -> None:
    assert text(0, layout(2, 2, 4)) == "F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3"
    assert text(1, layout(2, 2, 4)) == "F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3"


@pytest.mark.parametrize("shape", LAYOUTS)
def test_pipeline_idle_time_equals_the_bubble_formula(shape: tuple[int, int, int]) -> None:
    """The idle time is (pp - 1) / (chunks * microbatches) of the work, with equal durations and no transfers."""
    pp, num_chunks, num_microbatches = shape
    step_ns = simulate(
        plan(
            topology=Topology(pp=pp),
            noise="none",
            num_steps=1,
            num_chunks=num_chunks,
            num_microbatches=num_microbatches,
            milliseconds=only(forward_compute=10, backward_compute=20),
        )
    ).step_ns[0]
    work_ns = 30e6 * num_chunks * num_microbatches
    assert (step_ns - work_ns) / work_ns == pytest.approx((pp - 1) / (num_chunks * num_microbatches))


@pytest.mark.parametrize(("pp", "num_chunks"), [(4, 1), (4, 3), (2, 2)])
def test_no_operation_begins_before_its_dependencies_have_ended(pp: int, num_chunks: int) -> None:
    """receive -> compute -> send on a rank; a receive ends no earlier than its send began, and they end together."""
    topology = Topology(dp=2, pp=pp, tp=2)
    made = simulate(plan(topology=topology, noise="heavy", num_chunks=num_chunks, num_microbatches=8)).operations
    for compute, received, sent, way in (
        (Stage.FORWARD_COMPUTE, Stage.FORWARD_RECV, Stage.FORWARD_SEND, 1),
        (Stage.BACKWARD_COMPUTE, Stage.BACKWARD_RECV, Stage.BACKWARD_SEND, -1),
    ):
        begins, ends = by_piece(made[compute], pp)
        recv_begins, recv_ends = by_piece(made[received], pp)
        send_begins, send_ends = by_piece(made[sent], pp)
        assert recv_begins.keys() == {one for one in begins if (one[0] - way, *one[1:]) in begins}
        for one, recv_end in recv_ends.items():
            sender = (one[0] - way, *one[1:])
            assert (begins[one] >= recv_end).all()
            assert (send_begins[sender] >= ends[sender]).all()
            assert (recv_end == send_ends[sender]).all()
            assert (recv_end >= np.maximum(send_begins[sender], recv_begins[one])).all()


Times = dict[tuple[int, int], np.ndarray]


def by_piece(one: Operations, pp: int) -> tuple[Times, Times]:
    """(piece of the model, microbatch) -> begins and ends in every lane, [steps, dp, tp]."""
    begins: Times = {}
    ends: Times = {}
    grid = (*one.start_ns.shape[:2], 2, pp, 2)
    for rank in range(pp):
        for occurrence in range(grid[1]):
            where = (slice(None), occurrence, slice(None), rank)
            if one.present.reshape(grid)[where].all():
                chunk, microbatch = (int(v.reshape(grid)[where][0, 0, 0]) for v in (one.chunk, one.microbatch))
                piece = (chunk * pp + rank, microbatch)
                begins[piece], ends[piece] = one.start_ns.reshape(grid)[where], one.end_ns.reshape(grid)[where]
    return begins, ends
