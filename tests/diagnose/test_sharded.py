"""Jobs that shard their parameters: compute time excludes the waits of a rank in its gathers."""

import numpy as np
import pytest

from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import simulate, view
from diagnose.whatif.conclude import conclude
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan
from tests.score.cases import sharded_case
from tests.score.page import precision, recall
from tests.score.verdicts import verdict

MESHES = ["pp=2,dp_shard=4,tp=2", "dp_shard=8", "dp_replicate=2,dp_shard=4", "dp_shard=2,cp=2,tp=2"]
PREFETCHES = pytest.mark.parametrize("prefetches", [True, False], ids=["prefetched", "exposed"])
COMPUTES = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)


@PREFETCHES
@pytest.mark.parametrize("mesh", MESHES)
def test_slow_rank_is_named_and_ranks_that_wait_for_it_are_not(mesh: str, prefetches: bool) -> None:
    topology = Topology.parse(mesh)
    made = simulate(plan("slow:rank=3,factor=1.5", topology=topology, fsdp=True, prefetches=prefetches))
    told = diagnose_view(view(made)).findings
    assert [(one.kind, one.ranks) for one in told] == [("compute-straggler", [3])]


@PREFETCHES
def test_compute_time_of_a_rank_excludes_its_waits_for_the_slow_rank(
    prefetches: bool,
) -> None:
    topology = Topology.parse("dp_shard=4,tp=2")
    made = view(simulate(plan("slow:rank=3,factor=1.5", topology=topology, fsdp=True, prefetches=prefetches)))
    for stage, alone_ms in zip(COMPUTES, (4 * 40, 4 * 80), strict=True):
        wall = np.median(made.operations[stage].total_ns(), axis=0)
        assert wall.min() > 0.9 * wall.max()
        own_ms = np.median(made.work[stage].ns, axis=0) / 1e6
        assert own_ms == pytest.approx([1.5 * alone_ms if rank == 3 else alone_ms for rank in range(8)], rel=0.04)


def test_lasting_difference_of_one_percent_is_not_reported() -> None:
    made = simulate(plan("slow:rank=3,factor=1.01", topology=Topology.parse("dp_shard=8"), fsdp=True, num_steps=30))
    assert not diagnose_view(view(made)).findings


def test_wait_in_the_first_gather_of_a_forward_is_not_compute_time() -> None:
    """Rank 5 loads data for a second. The others wait for it in the first gather of their first forward."""
    fault = "data-stall:rank=5,seconds=1,share=1"
    made = view(simulate(plan(fault, topology=Topology.parse("dp_shard=8"), fsdp=True)))
    assert made.work[Stage.FORWARD_COMPUTE].ns.max() < 4 * 45e6
    assert [(one.kind, one.ranks) for one in diagnose_view(made).findings] == [("data-stall", [5])]


@PREFETCHES
def test_whatif_assigns_the_slowdown_only_to_the_replica_of_the_slow_rank(prefetches: bool) -> None:
    topology = Topology.parse("pp=2,dp_shard=4,tp=2")
    seen = view(simulate(plan("slow:rank=3,factor=1.5", topology=topology, fsdp=True, prefetches=prefetches)))
    found = conclude(seen)
    assert found.holds
    assert found.figures is not None
    assert found.figures.by_dp.argmax() == topology.place(3).dp == 1
    assert found.figures.by_dp[1] > 1.15
    assert np.delete(found.figures.by_dp, 1).max() < 1.05
    share = found.report.findings[0].seconds_lost / (seen.step_ns.sum() / 1e9)
    assert 0.15 < share < 0.34  # all of it is a third of the slow stage's step


def test_most_faults_of_sharded_runs_are_found_and_nothing_else_is_reported() -> None:
    verdicts = [verdict(sharded_case(seed)) for seed in range(300, 309)]
    assert precision(verdicts) == 1.0
    assert recall([one for one in verdicts if one.truth]) >= 0.95
    assert not [one for one in verdicts if one.wrong]
