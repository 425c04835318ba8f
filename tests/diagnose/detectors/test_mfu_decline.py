from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from diagnose.detectors.mfu_decline import detect_mfu_decline
from diagnose.findings import Finding, Kind, Severity
from diagnose.model.view import Basis, RunView, Work
from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import simulate, view
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_operations import GRIDS, FloatArray, around, with_history, with_operations, with_samples
from tests.diagnose.over_seeds import over_seeds
from tests.diagnose.simulate.made_plans import plan
from tests.each_case import each_case
from tests.score.cases import case
from tests.score.verdicts import verdict

STEP_NS = 240e6
WINDOW = 200
SEEDS = range(10)


def step_times(num_steps: int, *, jitter: float = 0.02, seed: int = 0) -> FloatArray:
    return around(STEP_NS, (num_steps,), jitter=jitter, seed=seed)


def view_of(step_ns: FloatArray, num_steps: int = WINDOW) -> RunView:
    """A view without stages. Tests that need stages add them."""
    return replace(with_history(step_ns, num_steps=min(num_steps, len(step_ns))), work={})


def lingering(num_steps: int, deviation: float, seed: int, kept: float = 0.8) -> FloatArray:
    """Step times with correlated noise: each step keeps the part ``kept`` of the previous noise."""
    fresh = np.random.default_rng(seed).normal(0.0, deviation * (1 - kept**2) ** 0.5, num_steps)
    noise = np.zeros(num_steps)
    for row in range(1, num_steps):
        noise[row] = kept * noise[row - 1] + fresh[row]
    return STEP_NS * np.exp(noise)


@each_case("num_steps", [20, 40, 120, 600])
@over_seeds(SEEDS)
def test_a_healthy_run_yields_nothing(num_steps: int, seed: int) -> None:
    assert detect_mfu_decline(view_of(step_times(num_steps, seed=seed))) == []


@each_case(("num_steps", "jitter"), list(product([40, 120, 600], [0.1, 0.3, 1.0])))
@over_seeds(SEEDS)
def test_heavy_jitter_yields_nothing(num_steps: int, jitter: float, seed: int) -> None:
    assert detect_mfu_decline(view_of(step_times(num_steps, jitter=jitter, seed=seed))) == []


@each_case("deviation", [0.03, 0.1])
@over_seeds(SEEDS)
def test_noise_correlated_over_steps_yields_nothing(deviation: float, seed: int) -> None:
    assert detect_mfu_decline(view_of(lingering(400, deviation, seed))) == []


@each_case("slow_first", [1, 5, 30])
@over_seeds(SEEDS)
def test_a_warm_up_yields_nothing(slow_first: int, seed: int) -> None:
    step_ns = step_times(200, seed=seed)
    step_ns[:slow_first] *= np.linspace(6.0, 1.5, slow_first)
    assert detect_mfu_decline(view_of(step_ns)) == []


@each_case(("every", "length"), [(10, 1), (25, 1), (50, 3), (100, 5)])
@each_case("times", [2.0, 20.0])
@over_seeds(range(10))
def test_periodic_slow_steps_of_checkpoints_or_evaluations_yield_nothing(
    every: int, length: int, times: float, seed: int
) -> None:
    step_ns = step_times(310, seed=seed)
    for row in range(every, len(step_ns), every):
        step_ns[row : row + length] *= times
    assert detect_mfu_decline(view_of(step_ns)) == []


@each_case("times", [1.15, 1.4, 3.0])
@each_case(("num_steps", "since"), [(40, 25), (300, 60), (300, 280), (2000, 1850)])
@over_seeds(range(4))
def test_decline_is_reported_with_first_step_ratio_and_lost_time(
    times: float, num_steps: int, since: int, seed: int
) -> None:
    step_ns = step_times(num_steps, seed=seed)
    step_ns[since:] *= times
    (finding,) = detect_mfu_decline(view_of(step_ns))
    assert finding.kind is Kind.MFU_DECLINE
    assert finding.suspects == ()
    assert abs(finding.window.first_step - since) <= 1
    assert finding.window.last_step == num_steps - 1
    assert finding.evidence["ratio"] == pytest.approx(times, rel=0.03)
    assert finding.seconds_lost == pytest.approx((num_steps - since) * (times - 1) * STEP_NS / 1e9, rel=0.25)
    assert finding.severity is (Severity.WARNING if times == 1.15 else Severity.CRITICAL)


@over_seeds(range(10))
def test_decline_is_found_despite_jitter_and_checkpoints(seed: int) -> None:
    step_ns = step_times(300, jitter=0.1, seed=seed)
    step_ns[150:] *= 1.3
    step_ns[::20] *= 5.0
    (finding,) = detect_mfu_decline(view_of(step_ns))
    assert abs(finding.window.first_step - 150) <= 8


@over_seeds(range(10))
def test_decline_that_has_recovered_is_info_and_the_summary_says_so(seed: int) -> None:
    step_ns = step_times(300, seed=seed)
    step_ns[150:200] *= 1.5
    (finding,) = detect_mfu_decline(view_of(step_ns))
    assert finding.severity is Severity.INFO
    assert "from step 150 to 199, then recovered" in finding.summary


def test_a_decline_that_was_over_before_the_window_yields_nothing() -> None:
    step_ns = step_times(600)
    step_ns[150:200] *= 1.5
    assert detect_mfu_decline(view_of(step_ns)) == []


@each_case(("num_steps", "growth"), [(150, 1.2), (300, 1.08), (3000, 1.3), (40, 4.0)])
@over_seeds(range(6))
def test_a_slow_drift_is_found(num_steps: int, growth: float, seed: int) -> None:
    step_ns = step_times(num_steps, seed=seed) * np.linspace(1.0, growth, num_steps)
    (finding,) = detect_mfu_decline(view_of(step_ns))
    assert "gradually take" in finding.summary
    assert finding.evidence["sudden"] == 0
    assert finding.window.last_step == num_steps - 1


def test_rise_of_three_percent_yields_nothing() -> None:
    step_ns = step_times(300, jitter=0.005)
    step_ns[150:] *= 1.03
    assert detect_mfu_decline(view_of(step_ns)) == []


def with_stages(*, seed: int, slow_rank: int | None, waits: bool) -> RunView:
    """From step 150 of 200 on, a step takes 60 ms more: in the work of one rank, in waiting, in both, or in neither."""
    step_ns = step_times(WINDOW, seed=seed)
    step_ns[150:] += 60e6
    view, num_ranks = view_of(step_ns), GRIDS[0].world_size
    shape = (WINDOW, num_ranks)
    work_ns = around(80e6, shape, jitter=0.03, seed=seed)
    reduce_ns = around(20e6, shape, jitter=0.1, seed=seed + 1)
    if slow_rank is not None:
        work_ns[150:, slow_rank] += 60e6
    if waits:
        waiting = np.arange(num_ranks) != slow_rank
        reduce_ns[150:, waiting] += 60e6
    view = with_operations(view, backward_compute=work_ns + 1e6, grads_reduce_scatter=reduce_ns)
    return replace(view, work={Stage.BACKWARD_COMPUTE: Work(ns=work_ns, basis=Basis.PROCESSOR_TIME)})


@over_seeds(range(5))
def test_waiting_that_grew_while_compute_stayed_flat_is_reported(seed: int) -> None:
    (finding,) = detect_mfu_decline(with_stages(seed=seed, slow_rank=None, waits=True))
    assert "communication or waiting takes longer (grads-reduce-scatter +" in finding.summary
    assert "compute did not grow: a late rank or the network is the cause" in finding.summary
    assert "links and switches" in finding.next_step


@over_seeds(range(5))
def test_slowdown_caused_by_one_rank_is_not_attributed_to_the_network(seed: int) -> None:
    (finding,) = detect_mfu_decline(with_stages(seed=seed, slow_rank=5, waits=True))
    assert "backward-compute (compute time) takes " in finding.summary
    assert "most on rank 5" in finding.summary
    assert "network" not in finding.summary
    assert str(finding.evidence["grew_ms_per_step"]).count("+") == 2


def test_summary_says_that_no_recorded_stage_explains_the_decline() -> None:
    (finding,) = detect_mfu_decline(with_stages(seed=0, slow_rank=None, waits=False))
    assert "no recorded stage became slower" in finding.summary
    assert "links" not in finding.next_step


def found_in(*faults: str, topology: Topology, noise: str = "recorded", seed: int = 0) -> dict[Kind, Finding]:
    """Findings by kind, of CPU ranks that share one host."""
    planned = plan(
        *faults,
        topology=topology,
        noise=noise,
        device="cpu",
        num_steps=60,
        num_microbatches=max(4, topology.pp),
        gpus_per_host=topology.world_size,
        seed=seed,
    )
    return {finding.kind: finding for finding in diagnose_view(view(simulate(planned))).findings}


@pytest.mark.parametrize(
    "topology", [GRIDS[0], Topology(dp=8), Topology(dp=1, pp=8), Topology(dp=4, pp=4, tp=2)], ids=str
)
@each_case(("noise", "factor"), [("recorded", 1.5), ("heavy", 2.5)])
@over_seeds(range(2))
def test_contention_on_a_shared_host_is_not_attributed_to_the_network(
    topology: Topology, noise: str, factor: float, seed: int
) -> None:
    told = found_in(f"contention:host=gpu-000,factor={factor},first_step=25", topology=topology, noise=noise, seed=seed)
    decline = told[Kind.MFU_DECLINE]
    assert "compute (off CPU) takes " in decline.summary
    assert "on every rank" in decline.summary
    assert "network" not in decline.summary
    assert "check what else uses the cores of all hosts" in decline.next_step


@over_seeds(range(3))
def test_slow_rank_on_a_crowded_host_is_named_and_the_decline_does_not_mention_links(seed: int) -> None:
    crowd, slow = "contention:host=gpu-000,factor=2.5,first_step=25", "slow:rank=5,factor=1.4"
    told = found_in(slow, crowd, topology=GRIDS[0], seed=seed)
    assert told[Kind.COMPUTE_STRAGGLER].ranks == [5]
    assert "links" not in told[Kind.MFU_DECLINE].next_step


@each_case("topology", [Topology(dp=2, pp=4), Topology(dp=4, pp=4, tp=2)])
@over_seeds(range(3))
def test_compute_growth_on_all_ranks_of_a_pipeline_is_not_attributed_to_the_network(
    topology: Topology, seed: int
) -> None:
    decline = found_in("slow:host=gpu-000,factor=1.5,first_step=25", topology=topology, seed=seed)[Kind.MFU_DECLINE]
    assert "backward-compute (compute time) takes " in decline.summary
    assert "network" not in decline.summary
    assert "clocks, temperature" in decline.next_step


def test_slightly_grown_compute_time_is_not_reported_as_flat() -> None:
    made = with_stages(seed=0, slow_rank=None, waits=True)
    work_ns = made.work[Stage.BACKWARD_COMPUTE].ns.copy()
    work_ns[150:] += 8e6
    made = replace(made, work={Stage.BACKWARD_COMPUTE: Work(ns=work_ns, basis=Basis.PROCESSOR_TIME)})
    (finding,) = detect_mfu_decline(made)
    assert "communication or waiting takes longer" in finding.summary
    assert "compute grew by at most" in finding.summary


def test_summary_says_that_no_stage_is_recorded() -> None:
    step_ns = step_times(300)
    step_ns[250:] *= 1.3
    (finding,) = detect_mfu_decline(view_of(step_ns))
    assert "no stage is recorded" in finding.summary


def test_next_step_gives_the_step_range_of_a_change_before_the_window() -> None:
    step_ns = step_times(1000)
    step_ns[400:] *= 1.3
    view = with_history(step_ns, num_steps=WINDOW)
    (finding,) = detect_mfu_decline(view)
    assert "the window does not contain the change" in finding.summary
    assert "--first-step 350 --last-step 450" in finding.next_step


def test_summary_gives_mfu_before_and_after_the_decline() -> None:
    step_ns = step_times(300)
    step_ns[150:] *= 1.25
    (finding,) = detect_mfu_decline(with_samples(view_of(step_ns), mfu=0.5 * STEP_NS / step_ns))
    assert "MFU 49.9% -> 40.2%" in finding.summary
    assert finding.evidence["mfu_after"] == pytest.approx(0.4, abs=0.01)


def test_longer_steps_with_a_constant_token_rate_are_not_a_decline() -> None:
    step_ns = step_times(300)
    step_ns[150:] *= 2.0
    assert detect_mfu_decline(with_samples(view_of(step_ns), tokens_per_second=np.full(300, 8192.0))) == []


def test_decline_is_found_in_the_window_when_there_is_no_history() -> None:
    step_ns = step_times(100)
    step_ns[50:] *= 1.3
    view = view_of(step_ns)
    (finding,) = detect_mfu_decline(replace(view, history=replace(view.history, steps=view.steps[:0])))
    assert abs(finding.window.first_step - 50) <= 1


@pytest.mark.parametrize("number", [4000514, 4000556, 4000682])
def test_a_decline_of_all_communication_is_reported_once_and_names_no_link(number: int) -> None:
    """Some groups become slower later than others."""
    assert [one.kind for one in verdict(case(number)).findings] == [Kind.MFU_DECLINE]
