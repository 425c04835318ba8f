"""From a replay to findings: their cost, and the cases without a conclusion."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from diagnose.findings import Kind
from diagnose.model.view import RunView
from diagnose.report import whatif_object, whatif_text
from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate, view
from diagnose.simulate.truth import parse_fault
from diagnose.whatif.conclude import Fix, conclude
from telemetry.topology import Topology

GRID = Topology(dp=4, pp=4, tp=2)


def _view(*faults: str, **settings: object) -> RunView:
    settings = {"topology": GRID, "faults": tuple(parse_fault(one) for one in faults), **settings}
    return view(simulate(SimulatedRun(**settings)))  # type: ignore[arg-type]


def test_cost_of_a_slow_rank_equals_the_time_lost_to_a_healthy_run() -> None:
    slow, healthy = _view("slow:rank=11,factor=1.5", noise=SILENT), _view(noise=SILENT)
    (finding,) = conclude(slow).report.findings
    assert (finding.kind, finding.ranks) == (Kind.COMPUTE_STRAGGLER, [11])
    assert finding.seconds_lost == pytest.approx((slow.step_ns - healthy.step_ns).sum() / 1e9, rel=0.01)


def test_only_the_slow_rank_has_a_cost_when_other_ranks_wait_in_an_expert_exchange() -> None:
    experts = {"topology": Topology.parse("dp=2,ep=4"), "experts": True, "num_microbatches": 4, "num_steps": 10}
    slow, healthy = (_view(*faults, noise=SILENT, **experts) for faults in (["slow:rank=5,factor=1.5"], []))
    found = conclude(slow)
    assert found.figures is not None
    (fix,) = (fix for fix in found.fixes if fix.change == "rank 5 like its peers")
    assert fix.saved_s == pytest.approx((slow.step_ns - healthy.step_ns).sum() / 1e9, rel=0.02)
    assert found.figures.by_dp[5] == pytest.approx(found.figures.slowdown, rel=0.01)
    assert np.delete(found.figures.by_dp, 5).max() < 1.01
    assert found.replay_error == pytest.approx(0, abs=0.02)


def test_link_losses_inside_the_backward_of_sharded_ranks_do_not_make_the_ideal_step_longer() -> None:
    sharded = {
        "topology": Topology.parse("dp_replicate=2,dp_shard=4"),
        "fsdp": True,
        "gpus_per_host": 2,
        "num_steps": 20,
    }
    broken, healthy = (
        conclude(_view(*faults, noise=SILENT, **sharded)).figures for faults in (["flap:rank=5,seconds=4,times=2"], [])
    )
    assert broken is not None
    assert healthy is not None
    assert broken.slowdown > 1.4
    assert broken.ideal_step_s.mean() == pytest.approx(healthy.ideal_step_s.mean(), rel=0.01)
    assert np.array_equal(broken.by_worker[:, 0], broken.by_dp)


@pytest.mark.parametrize("factor", [1.16, 2.03])
def test_slowdown_of_a_job_equals_the_factor_of_its_slow_replica(factor: float) -> None:
    """All of one replica is slow, so the job is as slow as that replica."""
    faults = [f"slow:rank={rank},factor={factor}" for rank in range(8)]
    slow, healthy = conclude(_view(*faults)), conclude(_view())
    assert slow.figures is not None
    assert healthy.figures is not None
    assert slow.figures.step_s.mean() / healthy.figures.step_s.mean() == pytest.approx(factor, rel=0.1)
    assert slow.figures.by_dp.argmax() == 0


def test_clock_offsets_between_hosts_do_not_change_the_slowdown() -> None:
    exact, skewed = (conclude(_view("slow:rank=11,factor=1.5", clock_offset_ms=ms)) for ms in (0.0, 50.0))
    assert exact.figures is not None
    assert skewed.figures is not None
    assert skewed.figures.slowdown == pytest.approx(exact.figures.slowdown, rel=0.01)
    assert skewed.figures.by_pp == pytest.approx(exact.figures.by_pp, rel=0.01)


def test_what_if_reports_a_gain_for_planned_garbage_collection() -> None:
    told = conclude(_view("gc:every=3,ms=400"))
    (planned,) = (fix for fix in told.fixes if "garbage collection" in fix.change)
    assert planned.share > 0.05


def test_share_that_rounds_to_zero_is_printed_without_a_sign() -> None:
    told = conclude(_view("slow:rank=11,factor=1.5"))
    assert told.figures is not None
    console = Console(width=300)
    with console.capture() as printed:
        console.print(whatif_text(replace(told, figures=replace(told.figures, m_w=-0.001, m_s=-0.002))))
    assert "explain 0% of the slowdown, the last pipeline stage 0%" in printed.get()


def test_what_if_reports_insufficient_evidence_when_the_replay_misses_the_measured_steps() -> None:
    seen = _view("slow:rank=11,factor=1.5")
    told = conclude(replace(seen, step_ns=seen.step_ns * 1.1))
    assert [finding.kind for finding in told.report.findings] == [Kind.INSUFFICIENT_EVIDENCE, Kind.COMPUTE_STRAGGLER]
    assert told.report.exit_status == 1
    assert whatif_object(told)["slowdown"] is None
    assert told.replay_error == pytest.approx(1 - 1 / 1.1, abs=0.01)
    assert "the replay differs from the measured step times by" in told.report.findings[0].summary
    assert told.fixes == ()
    assert told.figures is not None


def test_what_if_reports_insufficient_evidence_without_operations() -> None:
    told = conclude(replace(_view(), operations={}))
    assert told.figures is None
    assert not told.holds
    assert told.report.findings[0].kind is Kind.INSUFFICIENT_EVIDENCE
    answer = whatif_object(told)
    assert answer["slowdown"] is None
    assert answer["replay_error"] is None
    assert answer["findings"][0]["summary"].startswith("no what-if: ")


def test_run_with_a_single_rank_is_replayed() -> None:
    told = conclude(view(simulate(SimulatedRun(topology=Topology(dp=1), num_microbatches=4))))
    assert told.figures is not None
    assert told.figures.by_worker.shape == (1, 1)


def test_fix_of_a_finding_that_covers_only_some_steps_names_these_steps() -> None:
    told = conclude(_view("slow:rank=11,factor=1.5,last_step=29", noise=SILENT, num_steps=40))
    fix, *others = told.fixes
    assert fix.in_words == "rank 11 like its peers, steps 0 to 29"
    assert whatif_object(told)["what_if"][0]["window"] == {"first_step": 0, "last_step": 29}
    assert [other.window for other in others] == [None] * len(others)


def test_fix_with_a_negative_gain_is_printed_as_none() -> None:
    told = conclude(_view("slow:rank=11,factor=1.5", noise=SILENT))
    loss = Fix(change="balanced pipeline stages", saved_s=-0.42, share=-0.013)
    console = Console(width=120)
    with console.capture() as capture:
        console.print(whatif_text(replace(told, fixes=(loss,))))
    (row,) = (line for line in capture.get().splitlines() if line.lstrip().startswith(loss.change))
    assert row.split() == [*loss.change.split(), "none"]
