"""Where a step went: shares of each rank's step, and what idle time there is."""

from telemetry.stages import Stage
from tests.ui.few_spans import made_spans
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.span_details import where_the_step_went
from ui.dashboard.pages.timeline.step_shares import gaps_by_rank, shares_by_rank
from ui.dashboard.view_state import ViewState


def test_an_instant_of_the_step_counts_once() -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 1000),
        (0, Stage.FORWARD_COMPUTE, 0, 400),
        (0, Stage.TP_ALL_GATHER, 100, 50),
        (0, Stage.FORWARD_RECV, 350, 250),
        (0, Stage.OPTIMIZER, 700, 100),
    )
    (shares,) = shares_by_rank(spans)
    assert (shares.tensor_ns, shares.compute_ns, shares.pipeline_ns, shares.idle_ns) == (50, 450, 200, 300)


def test_time_in_each_kind_of_communication_has_a_column_of_its_name() -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 1000),
        (0, Stage.FORWARD_COMPUTE, 0, 600),
        (0, Stage.CP_ALL_GATHER, 100, 50),
        (0, Stage.EP_ALL_TO_ALL, 200, 120),
        (0, Stage.GRADS_REDUCE_SCATTER, 600, 400),
    )
    words = texts(written(where_the_step_went(shares_by_rank(spans), [], ())))
    assert words[1:8] == ["rank", "compute", "cp", "ep", "dp", "host", "idle"]
    assert words[8:15] == ["0", "43", "5", "12", "40", "0", "0"]


def test_idle_time_has_a_cause() -> None:
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


def test_shares_of_a_made_step_add_up(reads: Reads, run: SyntheticRun) -> None:
    facts = reads.facts(ViewState(run="made"))
    for shares in shares_by_rank(reads.spans(facts.summary, 20, tuple(range(8)))):
        parts = (shares.compute_ns, shares.tensor_ns, shares.pipeline_ns, shares.data_ns, shares.host_ns)
        assert sum(parts) + shares.idle_ns == shares.step_ns
        assert min(parts) >= 0
        assert shares.idle_ns < 0.01 * shares.step_ns
