"""Exposed communication, against a plain loop over nanoseconds."""

import numpy as np
import pytest

from diagnose.model import self_time
from diagnose.model.exposed import AXIS_OF_STAGE, exposed_of
from diagnose.model.operations import ABSENT, Operations
from diagnose.model.self_time import without_inner
from telemetry.stages import Stage, StageClass
from tests.diagnose.over_seeds import over_seeds

Spans = dict[Stage, list[tuple[int, int]]]
"""Begin and end of each span of one rank."""


def operations(ranks: list[list[tuple[int, int]]]) -> Operations:
    """Operations of one step. The spans of each rank are in order of their begin."""
    most = max(len(spans) for spans in ranks)
    start, duration = np.full((2, 1, most, len(ranks)), ABSENT, dtype=np.int64)
    for rank, spans in enumerate(ranks):
        for index, (begin, end) in enumerate(sorted(spans)):
            start[0, index, rank], duration[0, index, rank] = begin, end - begin
    absent = np.full(start.shape, ABSENT)
    return Operations(
        start_ns=start,
        duration_ns=duration,
        cpu_ns=absent.astype(np.int64),
        microbatch=absent.astype(np.int16),
        chunk=absent.astype(np.int16),
        peer=absent.astype(np.int32),
    )


def exposed(*ranks: Spans, on_device: bool = False) -> dict[Stage, list[float]]:
    stages = {stage for spans in ranks for stage in spans}
    made = {stage: operations([spans.get(stage, []) for spans in ranks]) for stage in stages}
    waits = made.pop(Stage.COMMUNICATION_WAIT, None)
    return {stage: ns[0].tolist() for stage, ns in exposed_of(made, waits, on_device=on_device).items()}


def by_loop(spans: Spans, axis: str) -> int:
    """Nanoseconds in which a CPU rank waits for an operation of the axis, counted one by one."""
    waits = {end: begin for begin, end in spans.get(Stage.COMMUNICATION_WAIT, [])}
    blocked = {
        stage: [(max(begin, waits.get(end, begin)), end) for begin, end in each]
        for stage, each in spans.items()
        if stage in AXIS_OF_STAGE
    }
    computes = [span for stage, each in spans.items() if stage.stage_class is StageClass.COMPUTE for span in each]
    stops = [
        span
        for each in blocked.values()
        for span in each
        if any(begin <= span[0] and span[1] <= end for begin, end in computes)
    ]
    along = [span for stage, each in blocked.items() if AXIS_OF_STAGE[stage] == axis for span in each]

    def within(at: int, intervals: list[tuple[int, int]]) -> bool:
        return any(begin <= at < end for begin, end in intervals)

    last = max(end for each in spans.values() for _, end in each)
    return sum(within(at, along) and not (within(at, computes) and not within(at, stops)) for at in range(last))


def test_transfer_is_exposed_while_no_compute_overlaps_it() -> None:
    spans = {Stage.FORWARD_COMPUTE: [(0, 50), (70, 90)], Stage.FORWARD_SEND: [(40, 80)]}
    assert exposed(spans, on_device=True) == {Stage.FORWARD_SEND: [20.0]}


def test_overlapping_operations_count_once_within_an_axis_and_axes_count_separately() -> None:
    spans = {
        Stage.OPTIMIZER: [(90, 100)],
        Stage.PARAMS_ALL_GATHER: [(0, 30)],
        Stage.GRADS_REDUCE_SCATTER: [(20, 50)],
        Stage.FORWARD_RECV: [(10, 40)],
    }
    found = exposed(spans)
    assert found[Stage.PARAMS_ALL_GATHER] == [30.0]
    assert found[Stage.GRADS_REDUCE_SCATTER] == [20.0]
    assert found[Stage.FORWARD_RECV] == [30.0]


def test_gradients_of_a_shared_embedding_move_along_the_pipeline() -> None:
    spans = {
        Stage.OPTIMIZER: [(90, 100)],
        Stage.FORWARD_RECV: [(0, 30)],
        Stage.EMBEDDING_GRADS_ALL_REDUCE: [(20, 50)],
        Stage.GRADS_REDUCE_SCATTER: [(10, 40)],
    }
    found = exposed(spans)
    assert found[Stage.EMBEDDING_GRADS_ALL_REDUCE] == [20.0], "the receive covers the rest of it"
    assert found[Stage.GRADS_REDUCE_SCATTER] == [30.0]


def test_device_compute_covers_parameter_gathers_but_not_tensor_parallel_gathers() -> None:
    spans = {
        Stage.FORWARD_COMPUTE: [(0, 100)],
        Stage.PARAMS_ALL_GATHER: [(10, 30)],
        Stage.TP_ALL_GATHER: [(20, 50)],
    }
    assert exposed(spans, on_device=True) == {Stage.PARAMS_ALL_GATHER: [10.0], Stage.TP_ALL_GATHER: [30.0]}
    assert exposed(spans) == {Stage.PARAMS_ALL_GATHER: [20.0], Stage.TP_ALL_GATHER: [30.0]}


def test_device_compute_that_waits_for_parameters_exposes_this_time_as_well() -> None:
    made = {
        Stage.FORWARD_COMPUTE: operations([[(0, 100)], [(0, 100)]]),
        Stage.PARAMS_ALL_GATHER: operations([[(10, 30), (90, 110)], []]),
    }
    found = exposed_of(made, None, on_device=True, waiting_ns=np.array([[15.0, 0.0], [0.0, 0.0]]))
    assert found[Stage.PARAMS_ALL_GATHER][0].tolist() == pytest.approx([10 + 15, np.nan], nan_ok=True)


def test_cpu_rank_is_blocked_from_the_begin_of_its_communication_wait() -> None:
    covered = {
        Stage.FORWARD_COMPUTE: [(0, 100)],
        Stage.TP_ALL_GATHER: [(20, 60)],
        Stage.COMMUNICATION_WAIT: [(55, 60)],
    }
    alone = {Stage.FORWARD_COMPUTE: [(0, 100)], Stage.TP_ALL_GATHER: [(20, 60)]}
    assert exposed(covered, alone) == {Stage.TP_ALL_GATHER: [5.0, 40.0]}


def test_exposed_time_is_unknown_without_compute_spans() -> None:
    assert exposed({Stage.FORWARD_SEND: [(0, 10)]}) == {}


@pytest.mark.parametrize("seed", range(20))
def test_exposed_time_equals_a_plain_loop_over_nanoseconds(seed: int) -> None:
    random = np.random.default_rng(seed)
    ranks: list[Spans] = []
    for _ in range(3):
        spans: Spans = {}
        for stage in (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.FORWARD_SEND, Stage.TP_ALL_GATHER):
            begins = random.integers(0, 300, size=5)
            spans[stage] = [(int(begin), int(begin + random.integers(1, 60))) for begin in begins]
        edges = np.sort(random.choice(400, size=8, replace=False)).tolist()
        spans[Stage.FORWARD_COMPUTE] = list(zip(edges[::2], edges[1::2], strict=True))
        chosen = {end: begin for each in list(spans.values())[:4] for begin, end in each if random.random() < 0.5}
        spans[Stage.COMMUNICATION_WAIT] = [(int(random.integers(begin, end)), end) for end, begin in chosen.items()]
        ranks.append(spans)
    found = exposed(*ranks)
    for axis in ("dp", "pp", "tp"):
        mine = [ns for stage, ns in found.items() if AXIS_OF_STAGE[stage] == axis]
        assert np.sum(mine, axis=0).tolist() == [by_loop(spans, axis) for spans in ranks]


@over_seeds(range(10))
def test_result_does_not_depend_on_the_number_of_ranks_examined_together(seed: int) -> None:
    """Also if ranks of a block have no compute, no waits or no operation of a stage."""
    random = np.random.default_rng(seed)
    stages = (Stage.FORWARD_COMPUTE, Stage.TP_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.COMMUNICATION_WAIT)
    ranks: list[Spans] = []
    for _ in range(7):
        some = [stage for stage in stages if random.random() < 0.6]
        ranks.append({stage: [(int(begin), int(begin) + 9) for begin in random.integers(0, 60, 3)] for stage in some})
    ranks.append({stage: [(1, 9)] for stage in stages})
    compute, inner = ({stage: operations([each.get(stage, []) for each in ranks])} for stage in stages[:2])
    expected = exposed(*ranks), without_inner(compute, inner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(self_time, "RANKS_AT_ONCE", 2)
        found = exposed(*ranks), without_inner(compute, inner)
    np.testing.assert_equal(found, expected)
