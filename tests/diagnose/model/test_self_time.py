import numpy as np
import pyarrow as pa

from diagnose.model.compute_time import compute_time_of
from diagnose.model.operations import operations_of
from diagnose.model.self_time import self_time_ns
from telemetry.stages import Stage


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_inner_spans_are_subtracted_from_the_span_they_begin_in() -> None:
    own = self_time_ns(ints(0, 100), ints(80, 50), ints(10, 60, 110, 140), ints(5, 10, 20, 5))
    assert own.tolist() == [65, 25]


def test_inner_span_is_subtracted_only_up_to_the_end_of_the_outer_span() -> None:
    assert self_time_ns(ints(0), ints(100), ints(90), ints(50)).tolist() == [90]


def test_overlapping_inner_spans_are_subtracted_once() -> None:
    assert self_time_ns(ints(0), ints(100), ints(10, 20, 60), ints(30, 5, 10)).tolist() == [60]


def test_inner_span_is_subtracted_from_every_span_that_it_overlaps() -> None:
    assert self_time_ns(ints(0, 100), ints(90, 50), ints(80), ints(40)).tolist() == [80, 30]


def test_inner_span_between_outer_spans_is_not_subtracted() -> None:
    assert self_time_ns(ints(0, 100), ints(10, 10), ints(50), ints(20)).tolist() == [10, 10]


def test_self_time_is_the_duration_when_there_are_no_inner_spans() -> None:
    assert self_time_ns(ints(0, 100), ints(10, 20), ints(), ints()).tolist() == [10, 20]


def test_compute_time_of_a_tensor_parallel_victim_excludes_its_wait() -> None:
    forward, reduce = int(Stage.FORWARD_COMPUTE), int(Stage.TP_ALL_REDUCE)
    rows = pa.table(
        {
            "stage": [forward, forward, reduce, reduce],
            "step": [7, 7, 7, 7],
            "rank": [0, 1, 0, 1],
            "start_ns": [0, 0, 50, 90],
            "duration_ns": [100, 100, 45, 5],
            **{name: [-1] * 4 for name in ("cpu_ns", "microbatch", "chunk", "peer")},
        }
    )
    operations = operations_of(rows, ints(7), num_ranks=2)
    inner = operations.pop(Stage.TP_ALL_REDUCE)
    own = compute_time_of(operations, {Stage.TP_ALL_REDUCE: inner})
    assert own.work[Stage.FORWARD_COMPUTE].ns.tolist() == [[55, 95]]


def test_host_garbage_collection_is_not_subtracted_from_device_compute_time() -> None:
    forward, gc = int(Stage.FORWARD_COMPUTE), int(Stage.GC)
    rows = pa.table(
        {
            "stage": [forward, gc],
            "step": [7, 7],
            "rank": [0, 0],
            "start_ns": [0, 50],
            "duration_ns": [100, 40],
            **{name: [-1] * 2 for name in ("cpu_ns", "microbatch", "chunk", "peer")},
        }
    )
    operations = operations_of(rows, ints(7), num_ranks=1)
    work = [compute_time_of(operations, {}, on_device=on_device).work for on_device in (False, True)]
    assert [one[Stage.FORWARD_COMPUTE].ns.tolist() for one in work] == [[[60]], [[100]]]


def test_gradient_reduction_inside_backward_counts_as_overlap() -> None:
    backward, reduce, receive = int(Stage.BACKWARD_COMPUTE), int(Stage.GRADS_ALL_REDUCE), int(Stage.BACKWARD_RECV)
    rows = pa.table(
        {
            "stage": [backward, backward, receive, reduce, reduce],
            "step": [7] * 5,
            "rank": [0, 1, 0, 0, 1],
            "start_ns": [0, 0, 0, 40, 90],
            "duration_ns": [100, 100, 30, 60, 20],
            "cpu_ns": [30, 60, -1, -1, -1],
            **{name: [-1] * 5 for name in ("microbatch", "chunk", "peer")},
        }
    )
    own = compute_time_of(operations_of(rows, ints(7), num_ranks=2), {})
    assert own.off_cpu[Stage.BACKWARD_COMPUTE].tolist() == [[70, 40]]
    assert own.overlap[Stage.BACKWARD_COMPUTE].tolist() == [[60, 10]]
