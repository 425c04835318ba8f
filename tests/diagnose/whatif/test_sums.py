"""Figures that can be calculated by hand."""

import numpy as np
import pytest

from diagnose.whatif.analysis import WhatIf, analyse, replayed
from telemetry.stages import Stage
from tests.diagnose.whatif.made_steps import data_parallel, one_stage


def _figures(work_s: list[list[float]], transfer_s: float = 0.0) -> WhatIf:
    operations, topology = data_parallel(work_s, transfer_s=transfer_s)
    run = replayed(operations, topology)
    assert run is not None
    return analyse(run, topology)


def test_equal_ranks_have_no_slowdown() -> None:
    figures = _figures([[4.0, 4.0], [4.0, 4.0]])
    assert figures.slowdown == pytest.approx(1.0)
    assert figures.m_w is None


def test_slow_rank_determines_the_step_time_and_explains_the_whole_slowdown() -> None:
    figures = _figures([[4.0, 4.0, 4.0, 8.0]], transfer_s=1.0)
    assert figures.step_s == pytest.approx([8 + 1 + 1])
    assert figures.ideal_step_s == pytest.approx([5 + 1 + 1])
    assert figures.by_dp == pytest.approx([1.0, 1.0, 1.0, 10 / 7])
    assert figures.m_w == pytest.approx(1.0)


def test_waiting_time_is_not_counted_as_transfer_time() -> None:
    assert _figures([[1.0, 9.0]], transfer_s=0.5).by_stage["grads-reduce-scatter"] == pytest.approx(1.0)


def test_a_step_in_which_a_rank_lacks_an_operation_is_left_out() -> None:
    operations, topology = data_parallel([[4.0, 4.0]] * 4)
    duration = operations[Stage.OPTIMIZER].duration_ns.astype(float) / 1e9
    duration[2, 0, 1] = -1.0
    broken = {**operations, Stage.OPTIMIZER: one_stage(np.full(duration.shape, 4.0), duration)}
    run = replayed(broken, topology)
    assert run is not None
    assert run.times.rows.tolist() == [0, 1, 3]
    assert run.times.num_left_out == 1


def test_without_compute_nothing_is_replayed() -> None:
    operations, topology = data_parallel([[4.0, 4.0]])
    assert replayed({Stage.OPTIMIZER: operations[Stage.OPTIMIZER]}, topology) is None
