"""The ideal timeline: values calculated by hand, and the figures of the replay."""

import numpy as np
import pytest

from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.view import RunView
from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate, view
from diagnose.simulate.truth import parse_fault
from diagnose.whatif.analysis import analyse, replay_of
from diagnose.whatif.ideal_steps import IdealSteps, NotReplayed, ideal_steps
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.whatif.made_steps import SECOND, data_parallel

GRID = Topology(dp=2, pp=2, tp=2)


def replayed(seen: RunView) -> IdealSteps:
    found = ideal_steps(seen)
    assert isinstance(found, IdealSteps)
    return found


def two_ranks(work_s: list[list[float]]) -> RunView:
    """A forward, a gradient collective of 2 s after both ranks have arrived, and an optimizer of 1 s."""
    operations, topology = data_parallel(work_s, transfer_s=2.0)
    step_ns = np.array([(max(step) + 3) * SECOND for step in work_s])
    return RunView(
        run_id="two", attempt=0, topology=topology, hosts=("a", "a"), steps=np.arange(7, 7 + len(work_s)),
        step_ns=step_ns, operations=operations,
    )  # fmt: skip


@pytest.fixture(scope="module")
def slow() -> RunView:
    plan = SimulatedRun(topology=GRID, num_steps=4, noise=SILENT, faults=(parse_fault("slow:rank=5,factor=1.4"),))
    return view(simulate(plan))


def test_ideal_operation_begins_as_soon_as_its_dependencies_have_ended() -> None:
    found = replayed(two_ranks([[1.0, 3.0]]))
    operations = found.operations
    assert operations.stage.tolist() == [Stage.FORWARD_COMPUTE, Stage.GRADS_REDUCE_SCATTER, Stage.OPTIMIZER]
    assert operations.begin_ns.tolist() == [0, 2 * SECOND, 4 * SECOND]
    assert operations.duration_ns.tolist() == [2 * SECOND, 2 * SECOND, SECOND]
    assert operations.waited_ns.tolist() == [0, 0, 0]
    assert (found.ideal_ns, found.replayed_ns.tolist(), found.steps.tolist()) == (5 * SECOND, [6 * SECOND], [7])


def test_ideal_receive_separates_waiting_time_from_transfer_time(slow: RunView) -> None:
    operations = replayed(slow).operations
    receives = (operations.pp == 1) & (operations.stage == Stage.FORWARD_RECV)
    first = np.flatnonzero(receives)[0]
    assert operations.waited_ns[first] > operations.duration_ns[first] / 2, "the first forward has to come first"
    assert (operations.waited_ns <= operations.duration_ns).all()


def test_ideal_computes_of_a_pipeline_stage_do_not_overlap() -> None:
    noisy = replayed(view(simulate(SimulatedRun(topology=GRID, num_steps=4)))).operations
    for pp in range(GRID.pp):
        mine = np.flatnonzero((noisy.pp == pp) & np.isin(noisy.stage, WORK_STAGES))
        mine = mine[np.argsort(noisy.begin_ns[mine])]
        assert (noisy.begin_ns[mine[1:]] >= (noisy.begin_ns + noisy.duration_ns)[mine[:-1]]).all()


def test_ideal_and_replayed_step_times_equal_those_of_the_analysis(slow: RunView) -> None:
    found, (run, _) = replayed(slow), replay_of(slow)
    assert run is not None
    figures = analyse(run, GRID)
    assert found.ideal_ns == pytest.approx(1e9 * figures.ideal_step_s.mean(), abs=2)
    assert found.replayed_ns == pytest.approx(1e9 * figures.step_s)


def test_only_steps_that_the_replay_misses_or_lacks_have_a_refusal() -> None:
    seen = two_ranks([[1.0, 3.0], [1.0, 3.0]])
    seen.step_ns[1] *= 1.2
    found = replayed(seen)
    assert found.refusal_of(7) == ""
    assert "differs from the measured step times by 16.7%" in found.refusal_of(8)
    assert "does not have the same operations" in found.refusal_of(9)


def test_ideal_steps_give_a_reason_when_no_step_can_be_replayed() -> None:
    nothing = RunView(run_id="none", attempt=0, topology=GRID, hosts=("a",) * 8, steps=np.arange(1), step_ns=np.ones(1))
    found = ideal_steps(nothing)
    assert isinstance(found, NotReplayed)
    assert "no step has the same operations" in found.why
