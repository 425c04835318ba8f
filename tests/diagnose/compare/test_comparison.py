"""Comparisons of two simulated runs, of ranges and of sets of ranks."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from diagnose.compare.comparison import compare_sides
from diagnose.compare.records import Comparison, Side, Verdict
from diagnose.compare.sides import parse_side, side_of
from diagnose.model.profiled import Profiled
from diagnose.model.view import RunView
from diagnose.report import comparison_headline
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate, view
from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import GRID, plan
from tests.each_case import each_case
from tests.score.windows import until

ROLES = parse_roles("rollout=4,actor=4")


@cache
def run(seed: int, *faults: str, topology: Topology = GRID, num_steps: int = 60, roles: bool = False) -> RunView:
    more = {"roles": ROLES} if roles else {}
    made = plan(*faults, topology=topology, num_steps=num_steps, seed=seed, name=f"run-{seed}", gpus_per_host=2, **more)
    return view(simulate(made))


def side(of: RunView, part: str = "") -> Side:
    return side_of(of, parse_side(f"{of.run_id}/0{part}"))


def differing(found: Comparison) -> list[str]:
    stages = [f"{each.name} {each.change.verdict}" for each in found.stages if each.change]
    return [name for name in stages if not name.endswith(Verdict.NO_DIFFERENCE)]


def named(found: Comparison) -> list[tuple[int, str]]:
    return [(each.rank, str(each.verdict)) for each in found.ranks]


def compared(b: RunView, a: RunView | None = None) -> Comparison:
    return compare_sides(side(a or run(1)), side(b))


def test_equal_runs_show_no_difference_and_the_smallest_detectable_change() -> None:
    found = compared(run(2))
    assert (found.verdict, differing(found), found.ranks, found.exit_status) == (Verdict.NO_DIFFERENCE, [], (), 0)
    assert found.step is not None
    assert found.step.change.low < 1 < found.step.change.high
    assert found.typical is not None
    least = min(found.step.change.detectable, found.typical.change.detectable)
    assert f"A change of {least:.1%} would be a difference" in comparison_headline(found)


@pytest.mark.parametrize(
    ("stage", "factor", "verdict"),
    [
        ("forward-compute", 1.08, Verdict.SLOWER),
        ("backward-compute", 1.04, Verdict.SLOWER),
        ("optimizer", 1.04, Verdict.NO_DIFFERENCE),  # 20 ms of a step: the job is not slower
    ],
)
def test_stage_that_is_slower_on_all_ranks_is_named_without_a_rank(stage: str, factor: float, verdict: Verdict) -> None:
    found = compared(run(3, f"duration:stage={stage},factor={factor}"))
    assert (found.verdict, differing(found), found.ranks) == (verdict, [f"{stage} slower"], ())
    (change,) = (each.change for each in found.stages_that_are(Verdict.SLOWER))
    assert change is not None
    assert change.low < factor < change.high


def test_slow_rank_is_named_with_its_hosts_on_both_sides_and_its_victims_are_not() -> None:
    b = run(4, "slow:rank=5,factor=1.1")
    found = compared(replace(b, hosts=("spare",) * 16))
    assert (found.verdict, found.exit_status, named(found), differing(found)) == (
        *(Verdict.SLOWER, 1),
        *([(5, "slower")], []),
    )
    assert found.ranks[0].hosts == "spare (A: gpu-002)"
    assert set(found.ranks[0].stages) == {Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE}
    assert "rank 5 (host spare) is up to 1" in comparison_headline(found)
    back = compare_sides(side(b), side(run(1)))
    assert (back.verdict, back.exit_status, named(back)) == (Verdict.FASTER, 0, [(5, "faster")])


def test_headline_has_the_step_time_that_confirms_the_slow_rank_although_a_few_steps_of_a_are_long() -> None:
    a = run(1)
    step_ns = a.step_ns.copy()
    step_ns[[25, 40]] *= 8
    found = compared(run(4, "slow:rank=5,factor=1.06"), replace(a, step_ns=step_ns))
    assert found.step is not None
    assert found.step.change.ratio < 1
    assert "B is 1.7% slower than A. A typical step takes 0.735 s instead of 0.722 s" in comparison_headline(found)
    assert any("typical step time confirms it" in note for note in found.notes)


def test_a_slow_host_and_a_longer_stage_are_named_together() -> None:
    found = compared(run(5, "slow:host=gpu-003,factor=1.15", "duration:stage=optimizer,factor=1.06"))
    assert sorted(named(found)) == [(6, "slower"), (7, "slower")]
    assert differing(found) == ["optimizer slower"]


def test_runs_on_different_grids_are_compared_by_step_time_and_stages_only() -> None:
    found = compared(run(6, "duration:stage=backward-compute,factor=1.06", topology=Topology(dp=2, pp=2, tp=2)))
    assert (found.ranks, found.ratios, differing(found)) == ((), (), ["backward-compute slower"])
    assert any("the meshes differ" in note for note in found.notes)


def test_stage_that_only_one_run_has_is_listed_and_not_compared() -> None:
    found = compared(run(7, topology=Topology(dp=8, pp=2)))
    alone = next(each for each in found.stages if each.stage is Stage.TP_ALL_REDUCE)
    assert (alone.b_s, alone.change) == (None, None)
    assert alone.a_s is not None
    assert alone.share_of_step < -0.01


def test_ranges_of_steps_and_sets_of_ranks_of_one_run_are_compared() -> None:
    b = run(8, "duration:stage=backward-compute,factor=1.06,first_step=30", "slow:host=gpu-001,factor=1.2")
    ranges = compare_sides(side(until(b, 30), "/steps=0-29"), side(b.newest(30), "/steps=30-"))
    assert (ranges.verdict, differing(ranges), ranges.ranks) == (Verdict.SLOWER, ["backward-compute slower"], ())
    assert (ranges.a.num_steps, ranges.b.num_steps, ranges.a.left_out) == (30, 30, 0)
    sets = compare_sides(side(b, "/ranks=4-7,12-15"), side(b, "/ranks=0-3,8-11"))  # 2 and 3 are on gpu-001
    assert (sets.step, sets.typical, sets.ranks) == (None, None, ())
    assert any("same steps" in note for note in sets.notes)
    with pytest.raises(UsageError, match="the same steps"):
        compare_sides(side(b), side(b))


def test_comparison_of_two_pipeline_stages_has_a_note_about_different_work() -> None:
    pp = run(1).pp_of_rank
    first, last = (",".join(map(str, np.flatnonzero(pp == at))) for at in (0, 1))
    found = compare_sides(side(run(1), f"/ranks={first}"), side(run(2), f"/ranks={last}"))
    assert any("different work" in note for note in found.notes)


def test_ranks_are_compared_within_their_role() -> None:
    a = run(20, topology=Topology(dp=8), roles=True)
    found = compared(run(21, "slow:rank=6,factor=1.2", topology=Topology(dp=8), roles=True), a)
    assert named(found) == [(6, "slower")]
    assert {each.role for each in found.stages} == {"rollout", "actor"}


def test_one_long_step_is_not_a_difference_but_many_long_steps_are() -> None:
    b = run(2)
    once, often = b.step_ns.copy(), b.step_ns.copy()
    once[30] *= 20
    often[15::3] *= 2
    assert compared(replace(b, step_ns=once)).verdict is Verdict.NO_DIFFERENCE
    found = compared(replace(b, step_ns=often))
    assert found.step is not None
    assert found.step.change.verdict is found.verdict is Verdict.SLOWER


def test_settling_and_profiled_steps_are_left_out_and_too_few_steps_are_rejected() -> None:
    b = run(2)
    cold = b.step_ns.copy()
    cold[:8] *= 5
    assert compared(replace(b, step_ns=cold, profiled=Profiled(steps=np.array([40, 41])))).b.left_out == 12
    with pytest.raises(UsageError, match="8 steps to compare"):
        side(run(9, num_steps=10))


@each_case(
    ("text", "parts"),
    [
        ("gpt", ("gpt", None, None, "")),
        ("gpt/2", ("gpt", 2, None, "")),
        ("a=b/steps=5-9/ranks=0-7,12", ("a=b", None, (5, 9), "0-7,12")),
        ("gpt/0/ranks=3/steps=7", ("gpt", 0, (7, 7), "3")),
    ],
)
def test_name_of_a_side_is_parsed_and_printed(text: str, parts: Sequence[object]) -> None:
    name = parse_side(text)
    window = name.window and (name.window.first_step, name.window.last_step)
    assert (name.run_id, name.attempt, window, name.ranks) == tuple(parts)
    assert parse_side(str(name)) == name


@each_case("text", ["", "/0", "gpt/x", "gpt/0/1", "gpt/steps=9-5", "gpt/steps=x", "gpt/ranks=", "gpt/"])
def test_invalid_name_of_a_side_is_rejected_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_side(text)
    assert error.value.hint
