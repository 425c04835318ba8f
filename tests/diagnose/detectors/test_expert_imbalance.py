"""expert-imbalance: unequal experts are reported. Their ranks are not stragglers, but a slow rank is still found."""

import pytest

from diagnose.findings import Finding
from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import simulate, view
from telemetry.topology import Topology
from tests.diagnose.over_seeds import over_seeds
from tests.diagnose.simulate.made_plans import plan

MESH = Topology.parse("dp=2,ep=4")


def found(*faults: str, seed: int = 0) -> tuple[Finding, ...]:
    return diagnose_view(view(simulate(plan(*faults, topology=MESH, experts=True, seed=seed)))).findings


@over_seeds(range(5))
def test_natural_load_differences_of_experts_yield_nothing(seed: int) -> None:
    assert found(seed=seed) == ()


@pytest.mark.parametrize("factor", [1.5, 3])
def test_unequal_experts_are_reported_without_a_suspect(factor: float) -> None:
    (finding,) = found(f"experts:factor={factor},ep=2")
    assert (finding.kind, finding.suspects) == ("expert-imbalance", ())
    assert sorted(finding.evidence["hottest_ranks"]) == [2, 6]  # type: ignore[type-var]
    assert "ranks 2, 6 receive up to " in finding.summary


@over_seeds(range(5))
def test_slow_rank_is_found_beside_overloaded_experts(seed: int) -> None:
    kinds = {
        (each.kind.value, *each.ranks) for each in found("experts:factor=2,ep=2", "slow:rank=5,factor=1.3", seed=seed)
    }
    assert kinds == {("expert-imbalance",), ("compute-straggler", 5)}
