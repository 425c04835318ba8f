"""The timeline as a value, and where a step went."""

import numpy as np

from telemetry.stages import Stage
from tests.ui.synthetic_run import SyntheticRun
from ui.figures.step_shares import gaps_by_rank, shares_by_rank
from ui.figures.timeline import fit, step_timeline
from ui.reads import Reads
from ui.records import SPAN_COLUMNS, SpanColumns
from ui.view_state import SpanKey, ViewState


def made_spans(*rows: tuple[int, Stage, int, int]) -> SpanColumns:
    """Spans of rank, stage, start and duration, in nanoseconds, numbered in order."""
    columns = {name: np.zeros(len(rows), dtype=np.int64) for name in SPAN_COLUMNS}
    columns["rank"] = np.array([row[0] for row in rows])
    columns["stage"] = np.array([int(row[1]) for row in rows])
    columns["stream"] = np.array([int(row[1].stream) for row in rows])
    columns["start_ns"] = np.array([row[2] for row in rows])
    columns["duration_ns"] = np.array([row[3] for row in rows])
    columns["seq"] = np.arange(len(rows))
    return SpanColumns(**columns)


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


def test_too_many_spans_leave_out_the_shortest_and_say_so() -> None:
    spans = made_spans(*[(0, Stage.FORWARD_COMPUTE, 10 * at, at + 1) for at in range(100)])
    drawn = fit(spans, limit=60)
    assert (len(drawn.spans), drawn.num_hidden, drawn.longest_hidden_ns) == (60, 40, 40)
    assert drawn.spans.start_ns.tolist() == sorted(drawn.spans.start_ns.tolist())


def test_every_span_has_a_bar_in_its_ranks_row() -> None:
    spans = made_spans(
        (7, Stage.STEP, 0, 1000), (7, Stage.FORWARD_COMPUTE, 0, 400), (3, Stage.FORWARD_COMPUTE, 10, 400)
    )
    figure = step_timeline(spans, [], {3: "c", 7: "g"}, [7], SpanKey(7, 1), keep="k")
    bars = next(trace for trace in figure.data if trace.name == "forward-compute")
    assert [list(data[:2]) for data in bars.customdata] == [[7, 1], [3, 2]]
    assert [int(row) for row in bars.y] == [1, 0]
    assert "▶ rank 7 suspect" in figure.layout.yaxis.ticktext[1]
    assert len(figure.layout.shapes) == 1


def test_a_step_without_spans_is_an_empty_picture() -> None:
    figure = step_timeline(made_spans(), [], {0: "a"}, [], None, keep="k")
    assert all(len(trace.x) == 0 for trace in figure.data)
