"""What a finding costs: one figure, from a replay without the fault."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.findings import Basis, Kind, Severity
from diagnose.model.view import RunView
from diagnose.pipeline import diagnose_view, without_costs
from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate, view
from diagnose.simulate.truth import parse_fault
from diagnose.whatif import cost
from diagnose.whatif.conclude import conclude
from diagnose.whatif.cost import Fix, Replay, replay_or_reason, with_costs
from telemetry.topology import Topology
from tests.diagnose.whatif.made_steps import data_parallel

GRID = Topology(dp=4, pp=4, tp=2)


def simulated(*faults: str, **settings: object) -> RunView:
    settings = {"topology": GRID, "faults": tuple(map(parse_fault, faults)), "noise": SILENT, **settings}
    return view(simulate(SimulatedRun(**settings)))  # type: ignore[arg-type]


def lost_s(faulty: RunView, healthy: RunView) -> float:
    return float((faulty.step_ns - healthy.step_ns).sum()) / 1e9


def gain(rank: int, *, step_s: float = 9.0) -> Fix:
    """The gain of fixing ``rank`` in five steps. Rank 3 takes eight seconds, the other ranks take four. ``step_s``: the
    measured step time. The replayed one is 9 s."""
    operations, topology = data_parallel([[4.0, 4.0, 4.0, 8.0]] * 5)
    seen = RunView(
        run_id="made",
        attempt=0,
        topology=topology,
        hosts=("a",) * 4,
        steps=np.arange(5),
        step_ns=np.full(5, step_s * 1e9),
        operations=operations,
    )
    replay = replay_or_reason(seen)
    assert isinstance(replay, Replay)
    change = replay.ranks_like_peers([rank])
    assert change is not None
    return replay.saved(change)


def test_cost_of_a_slow_rank_equals_the_wait_of_its_peers() -> None:
    assert gain(3).saved_s == pytest.approx(5 * 4.0)


def test_gain_is_a_share_of_the_measured_step_time() -> None:
    assert gain(3, step_s=9.2).saved_s == pytest.approx(5 * 9.2 * 4 / 9)


def test_a_rank_that_only_waits_costs_nothing() -> None:
    assert gain(0).saved_s <= 0


@pytest.mark.parametrize(
    ("faults", "ranks"),
    [
        (["slow:rank=11,factor=1.5"], [11]),
        (["slow:rank=11,factor=1.5,first_step=20"], [11]),
        (["slow:rank=10,factor=1.5", "slow:rank=11,factor=1.5"], [10, 11]),
        (["throttle:rank=11,factor=1.5"], [11]),
    ],
    ids=["a rank", "a rank since step 20", "both ranks of a tensor-parallel group", "a throttled rank"],
)
def test_cost_of_a_finding_equals_the_time_that_the_job_lost(faults: list[str], ranks: list[int]) -> None:
    faulty, healthy = simulated(*faults), simulated()
    (finding,) = diagnose_view(faulty).findings
    assert (finding.ranks, finding.basis) == (ranks, Basis.REPLAYED)
    assert finding.seconds_lost == pytest.approx(lost_s(faulty, healthy), rel=0.02)
    inside = (faulty.steps >= finding.window.first_step) & (faulty.steps <= finding.window.last_step)
    assert finding.share_lost * faulty.step_ns[inside].sum() / 1e9 == pytest.approx(finding.seconds_lost)
    assert f"costs {finding.share_lost:.1%} of the step time" in finding.headline


def test_cost_of_garbage_collection_is_slightly_less_than_the_time_that_the_job_lost() -> None:
    """The time of the collections themselves is not saved."""
    faulty, healthy = simulated("gc"), simulated()
    (finding,) = diagnose_view(faulty).findings
    assert (finding.kind, finding.basis) == (Kind.LATE_LAUNCH, Basis.REPLAYED)
    assert 0.9 * lost_s(faulty, healthy) < finding.seconds_lost < lost_s(faulty, healthy)


TWO_SLOW = ("slow:rank=3,factor=1.4", "slow:rank=11,factor=1.4")


@pytest.mark.parametrize("faults", [("slow:rank=11,factor=1.2",), TWO_SLOW, ("stage:pp=1,factor=1.4",), ("gc",)])
def test_report_and_what_if_state_the_same_cost(faults: tuple[str, ...]) -> None:
    seen = simulated(*faults)
    reported, concluded = diagnose_view(seen).findings, conclude(seen)
    assert reported
    assert reported == concluded.report.findings
    gains = [round(fix.saved_s, 6) for fix in concluded.fixes]
    assert all(round(finding.seconds_lost, 6) in gains for finding in reported if finding.basis is Basis.REPLAYED)


def test_cost_stays_the_same_when_only_the_newest_steps_of_a_large_window_are_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = simulated("slow:rank=11,factor=1.5")
    (whole,) = diagnose_view(seen).findings
    num_operations = sum(int(operations.present.sum()) for operations in seen.operations.values())
    monkeypatch.setattr(cost, "MAX_OPERATIONS", num_operations // 8)
    (part,) = diagnose_view(seen).findings
    assert part.seconds_lost == pytest.approx(whole.seconds_lost, rel=0.02)
    assert conclude(seen).report.findings == (part,)


def test_finding_states_its_own_excess_when_no_other_replica_does_the_same_work() -> None:
    (finding,) = diagnose_view(simulated("slow:rank=3,factor=1.5", topology=Topology(pp=2, tp=4))).findings
    assert finding.basis is Basis.EXCESS
    assert finding.evidence["not_replayed"] == "no other replica does the same work"
    assert "own excess" in finding.cost
    assert "the cost to the job is unknown" in finding.headline


def test_severity_of_a_fault_hidden_by_a_slower_rank_follows_its_cost() -> None:
    """Rank 11 waits for rank 3, which is much slower."""
    seen = simulated("slow:rank=3,factor=1.6", "slow:rank=11,factor=1.24")
    before = {finding.ranks[0]: finding for finding in without_costs(seen).findings}
    after = {finding.ranks[0]: finding for finding in diagnose_view(seen).findings}
    assert after[11].seconds_lost < 0.1 * before[11].seconds_lost
    assert after[11].headline.endswith("the cost to the job is zero in these steps")
    assert (before[11].severity, after[11].severity) == (Severity.WARNING, Severity.INFO)
    assert after[3].seconds_lost > 0


def test_finding_is_reported_with_its_excess_when_the_replay_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: RunView) -> None:
        raise IndexError("unexpected data")

    seen = simulated("slow:rank=11,factor=1.5")
    monkeypatch.setattr(cost, "replay_of", fail)
    (finding,) = diagnose_view(seen).findings
    assert (finding.ranks, finding.basis) == ([11], Basis.EXCESS)
    assert finding.evidence["not_replayed"] == "the replay failed: IndexError: unexpected data"


def test_a_view_of_one_role_is_not_replayed() -> None:
    seen = simulated("slow:rank=11,factor=1.5")
    (finding,) = without_costs(seen).findings
    (of_role,) = with_costs([finding], replace(seen, rank_numbers=tuple(range(100, 132))))
    assert (of_role.finding, of_role.fix) == (finding, None)
