"""rollout-tail: long rollouts on changing ranks are reported, slow ranks and natural lengths are not."""

from dataclasses import replace

from diagnose.model.view import RunView
from diagnose.pipeline import diagnose_view
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate, view
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.over_seeds import over_seeds
from tests.diagnose.simulate.made_plans import plan


def made(*faults: str, seed: int = 0) -> RunView:
    roles = parse_roles("rollout=8,reference=2,actor=6")
    return view(simulate(plan(*faults, topology=Topology(dp=16), roles=roles, num_steps=20, seed=seed)))


def kinds(seen: RunView) -> list[tuple[str, list[int]]]:
    return [(finding.kind.value, finding.ranks) for finding in diagnose_view(seen).findings]


@over_seeds(range(5))
def test_rollout_tail_is_reported_without_a_suspect(seed: int) -> None:
    assert kinds(made("tail:factor=2.5,share=0.8", seed=seed)) == [("rollout-tail", [])]


@over_seeds(range(5))
def test_slow_rank_is_not_reported_as_a_rollout_tail(seed: int) -> None:
    assert kinds(made("slow:rank=3,factor=2.5", seed=seed)) == [("compute-straggler", [3])]


def test_rank_is_not_named_for_slow_rollouts_without_recorded_sizes() -> None:
    seen = made("slow:rank=3,factor=2.5")
    rollouts = replace(seen.operations[Stage.ROLLOUT], size_bytes=None)
    work = {stage: each for stage, each in seen.work.items() if stage is not Stage.ROLLOUT}
    seen = replace(seen, operations={**seen.operations, Stage.ROLLOUT: rollouts}, work=work)
    assert [each for each in kinds(seen) if each[0] in ("compute-straggler", "rollout-tail")] == []
