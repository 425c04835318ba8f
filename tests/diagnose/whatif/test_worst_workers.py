"""The gain of fixing the worst workers."""

import pytest

from diagnose.report import whatif_object
from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate, view
from diagnose.simulate.truth import parse_fault
from diagnose.whatif.conclude import Conclusion, conclude
from telemetry.topology import Place, Topology

GRID = Topology(dp=4, pp=4, tp=2)


def concluded(*faults: str, **settings: object) -> Conclusion:
    plan = SimulatedRun(topology=GRID, faults=tuple(parse_fault(one) for one in faults), **settings)  # type: ignore[arg-type]
    return conclude(view(simulate(plan)))


def test_worker_of_the_slow_rank_is_fixed_first_and_its_fix_removes_most_of_the_slowdown() -> None:
    found = concluded("slow:rank=11,factor=1.5")
    assert found.figures is not None
    assert found.worst_workers is not None
    slow = GRID.place(11)
    assert found.worst_workers.workers[0].tolist() == [slow.dp, slow.pp]
    share = found.worst_workers.share_gone(float(found.figures.ideal_step_s.mean()))
    assert share[0] == 0
    assert share[1] > 0.5
    assert share[1] == pytest.approx(found.figures.m_w)


def test_step_time_is_ideal_when_all_workers_are_fixed() -> None:
    found = concluded("slow:rank=11,factor=1.5")
    assert found.figures is not None
    assert found.worst_workers is not None
    assert found.worst_workers.num_fixed[-1] == GRID.dp * GRID.pp
    assert found.worst_workers.step_s[-1] == pytest.approx(found.figures.ideal_step_s.mean())


def test_two_slow_workers_are_fixed_one_after_the_other() -> None:
    slow = {Place(dp=0, pp=1, tp=0), Place(dp=2, pp=3, tp=0)}
    found = concluded(*(f"slow:rank={GRID.rank(place)},factor=1.6" for place in slow))
    assert found.worst_workers is not None
    assert {tuple(one) for one in found.worst_workers.workers[:2].tolist()} <= {
        (dp, pp) for dp in (0, 2) for pp in (1, 3)
    }
    report = whatif_object(found)["fixing_workers"]
    assert [one["workers"] for one in report[:3]] == [0, 1, 2]
    assert report[0]["slowdown"] == pytest.approx(whatif_object(found)["slowdown"])


def test_no_worker_is_fixed_when_no_rank_is_slow() -> None:
    found = concluded(noise=SILENT)
    assert found.worst_workers is None
    assert whatif_object(found)["fixing_workers"] is None
