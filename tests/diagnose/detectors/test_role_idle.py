"""role-idle: a role that waits most of the step is named; natural differences and small roles are not."""

import numpy as np

from diagnose.findings import Finding
from diagnose.pipeline import diagnose_view
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate, view
from telemetry.topology import Topology
from tests.diagnose.made_operations import with_operations
from tests.diagnose.over_seeds import over_seeds
from tests.diagnose.simulate.made_plans import plan

ROLES = "rollout=8,reward=4,actor=8"


def found(*faults: str, roles: str = ROLES, seed: int = 0) -> tuple[Finding, ...]:
    parsed = parse_roles(roles)
    topology = Topology(dp=sum(role.num_ranks for role in parsed))
    return diagnose_view(view(simulate(plan(*faults, topology=topology, roles=parsed, seed=seed)))).findings


@over_seeds(range(5))
def test_natural_differences_between_roles_yield_nothing(seed: int) -> None:
    assert found(seed=seed) == ()


@over_seeds(range(5))
def test_waiting_role_is_named_without_a_suspect(seed: int) -> None:
    (finding,) = found("idle:role=reward,factor=4", seed=seed)
    assert (finding.kind, finding.suspects) == ("role-idle", ())
    assert (finding.evidence["role"], finding.evidence["waits_for"]) == ("reward", "rollout")


def test_small_waiting_role_is_not_reported() -> None:
    assert found("idle:role=reward,factor=4", roles="rollout=32,reward=1,actor=16") == ()


def test_slow_rank_is_reported_instead_of_the_roles_that_wait_for_it() -> None:
    (finding,) = found("slow:rank=15,factor=4")
    assert (finding.kind, finding.ranks) == ("compute-straggler", [15])
    assert "role actor" in finding.summary


def test_data_load_of_a_role_that_waits_for_rollouts_is_not_a_data_stall() -> None:
    """The actor records its wait for the rollouts of other roles as data-load."""
    parsed = parse_roles(ROLES)
    seen = view(simulate(plan("idle:role=actor,factor=4", topology=Topology(dp=20), roles=parsed)))
    load_ns = np.where(np.arange(20) >= 12, 0.7 * seen.step_ns[:, None], 1e6)
    findings = diagnose_view(with_operations(seen, data_load=load_ns)).findings
    assert [each.kind for each in findings] == ["role-idle"]
