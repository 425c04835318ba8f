"""Shares of each rank's step time, and its idle time."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.model.view import Basis
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.ui.few_spans import made_spans
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.bubbles import pipeline_bubbles
from ui.dashboard.pages.timeline.span_details import step_share_table
from ui.dashboard.pages.timeline.step_shares import StepCompute, gaps_by_rank, shares_by_rank
from ui.dashboard.view_state import ViewState


def test_overlapping_spans_count_each_instant_of_the_step_once() -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 1000),
        (0, Stage.FORWARD_COMPUTE, 0, 400),
        (0, Stage.TP_ALL_GATHER, 100, 50),
        (0, Stage.FORWARD_RECV, 350, 250),
        (0, Stage.OPTIMIZER, 700, 100),
    )
    (shares,) = shares_by_rank(spans)
    assert (shares.tensor_ns, shares.compute_ns, shares.pipeline_ns, shares.idle_ns) == (50, 450, 200, 300)


WITH_GATHER = made_spans(
    (0, Stage.STEP, 0, 1000),
    (0, Stage.FORWARD_COMPUTE, 0, 600),
    (0, Stage.TP_ALL_GATHER, 100, 50),
    (0, Stage.PARAMS_ALL_GATHER, 200, 80),
    (0, Stage.OPTIMIZER, 700, 100),
)
"""Compute spans take 650 ns without the tensor-parallel collective."""


@each_case(
    ("basis", "compute_ns", "data_ns", "off_cpu_ns"),
    [(Basis.SELF_TIME, 500, 150, 0), (Basis.PROCESSOR_TIME, 500, 80, 70), (Basis.PROCESSOR_TIME, 600, 50, 0)],
)
def test_rest_of_compute_spans_is_waiting_for_parameters_and_otherwise_off_the_processor(
    basis: Basis, compute_ns: int, data_ns: int, off_cpu_ns: int
) -> None:
    """The optimizer takes 100 ns of the compute time."""
    spans = replace(WITH_GATHER, cpu_ns=np.full(5, -1))
    (shares,) = shares_by_rank(spans, StepCompute(ns={0: compute_ns - 100.0}, basis=basis))
    assert (shares.compute_ns, shares.data_ns, shares.off_cpu_ns) == (compute_ns, data_ns, off_cpu_ns)
    assert (shares.tensor_ns, shares.idle_ns) == (50, 300)
    words = texts(written(step_share_table([shares], [], ())))
    assert ("off CPU %" in words) is (off_cpu_ns > 0)


def test_compute_time_that_exceeds_the_compute_spans_shrinks_the_other_shares() -> None:
    (shares,) = shares_by_rank(WITH_GATHER, StepCompute(ns={0: 725.0}, basis=Basis.PROCESSOR_TIME))
    assert (shares.compute_ns, shares.tensor_ns, shares.idle_ns) == (725, 40, 235)
    (most,) = shares_by_rank(WITH_GATHER, StepCompute(ns={0: 2000.0}, basis=Basis.SELF_TIME))
    assert (most.compute_ns, most.tensor_ns, most.idle_ns, most.step_ns) == (1000, 0, 0, 1000)


def test_each_kind_of_communication_has_a_column_with_its_name() -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 1000),
        (0, Stage.FORWARD_COMPUTE, 0, 600),
        (0, Stage.CP_ALL_GATHER, 100, 50),
        (0, Stage.EP_ALL_TO_ALL, 200, 120),
        (0, Stage.GRADS_REDUCE_SCATTER, 600, 400),
    )
    words = texts(written(step_share_table(shares_by_rank(spans), [], ())))
    assert words[1:8] == ["rank", "compute %", "cp %", "ep %", "dp %", "host %", "idle %"]
    assert words[8:15] == ["0", "43", "5", "12", "40", "0", "0"]


def test_bubble_of_1f1b_is_measured_per_rank_and_per_pipeline_and_compared_with_theory() -> None:
    """Each rank computes for 4 of 6 units.

    pp0   F0 F1 .. B0 .. B1
    pp1   .. F0 B0 F1 B1 ..
    """
    forward, backward = Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE
    spans = made_spans(
        (0, forward, 0, 100), (0, forward, 100, 100), (0, backward, 300, 100), (0, backward, 500, 100),
        (1, forward, 100, 100), (1, backward, 200, 100), (1, forward, 300, 100), (1, backward, 400, 100),
        microbatch=[0, 1, 0, 1, 0, 0, 1, 1],
    )  # fmt: skip
    (found,) = pipeline_bubbles(spans, Topology(pp=2))
    assert (found.window_ns, dict(found.bubble_ns)) == (600, {0: 200, 1: 200})
    assert found.share == pytest.approx(2 / 6)
    assert found.theoretical_share == pytest.approx(1 / 3)
    said = " ".join(texts(written(step_share_table(shares_by_rank(spans), [], (), [found]))))
    assert "bubble %" in said
    assert "Measured 33.3% of 600 ns; in theory 33.3%: (p - 1) / (m + p - 1) of 1F1B, with p = 2 stages" in said


def test_pipeline_with_a_missing_rank_has_no_bubble() -> None:
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 0, 100), (2, Stage.FORWARD_COMPUTE, 0, 100))
    assert pipeline_bubbles(spans, Topology(dp=2, pp=2)) == []
    assert pipeline_bubbles(spans, Topology(dp=4)) == []
    (found,) = pipeline_bubbles(spans, Topology(pp=2, tp=2))
    assert (dict(found.bubble_ns), found.theoretical_share) == ({0: 0, 2: 0}, None)


def test_idle_gap_has_a_cause() -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 1000),
        (0, Stage.FORWARD_COMPUTE, 0, 300),
        (0, Stage.BACKWARD_RECV, 500, 100),
        (0, Stage.OPTIMIZER, 700, 200),
    )
    gaps = gaps_by_rank(spans)
    assert [(gap.start_ns, gap.duration_ns) for gap in gaps] == [(300, 200), (600, 100), (900, 100)]
    assert gaps[0].cause == "pipeline bubble between forward-compute and backward-recv"
    assert gaps[2].cause == "nothing recorded at the edge of the step"


def test_shares_of_a_step_add_up_to_its_duration(reads: Reads, run: SyntheticRun) -> None:
    facts = reads.facts(ViewState(run="made"))
    for shares in shares_by_rank(reads.spans(facts.summary, 20, tuple(range(8)))):
        parts = (shares.compute_ns, shares.tensor_ns, shares.pipeline_ns, shares.data_ns, shares.host_ns)
        assert sum(parts) + shares.idle_ns == shares.step_ns
        assert min(parts) >= 0
        assert shares.idle_ns < 0.01 * shares.step_ns
