import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diagnose.detectors.loss_anomaly import detect_loss_anomaly
from diagnose.findings import Kind, Severity
from diagnose.model.view import RunView
from telemetry.topology import Topology
from tests.diagnose.made_operations import GRIDS, FloatArray, around, with_samples
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

NUM_STEPS = 140
SEEDS = range(30)
RECORDED = {
    name: np.array(values)
    for name, values in json.loads(Path(__file__).with_name("recorded_losses.json").read_text()).items()
}
"""Losses of small models that trained on a processor, from their first step on. All are healthy."""
CALM = ("language model, AdamW, batch 16", "language model, AdamW, batch 16, fast")


def falling_loss(seed: int, jitter: float = 0.02) -> FloatArray:
    """From 11 to about 3, as of a fresh run."""
    step = np.arange(NUM_STEPS)
    return (3.0 + 8.0 * np.exp(-step / 15.0)) * around(1.0, (NUM_STEPS,), jitter=jitter, seed=seed)


def wild_then_calm_norm(seed: int, jitter: float = 0.2) -> FloatArray:
    """Anything between 0.1 and 100 in the first twelve steps, about 1 afterwards."""
    norm = around(1.0, (NUM_STEPS,), jitter=jitter, seed=seed + 1000)
    norm[:12] *= np.exp(np.random.default_rng(seed).uniform(-2.3, 4.6, 12))
    return norm


def view_of(loss: FloatArray, norm: FloatArray, topology: Topology = GRIDS[0]) -> RunView:
    """Steps 100 to 139 are the window."""
    return with_samples(make_view(topology, num_steps=40), loss=loss, gradient_norm=norm)


def changed(series: FloatArray, rows: slice | list[int], by: float) -> FloatArray:
    series = series.copy()
    series[rows] *= by
    return series


@each_case("topology", GRIDS)
@over_seeds(SEEDS)
def test_a_fresh_run_that_warms_up_yields_nothing(topology: Topology, seed: int) -> None:
    view = view_of(falling_loss(seed), wild_then_calm_norm(seed), topology)
    assert detect_loss_anomaly(replace(view, steps=np.arange(NUM_STEPS), step_ns=np.full(NUM_STEPS, 1e9))) == []


@each_case("jitter", [0.3, 1.0])
@over_seeds(SEEDS)
def test_heavy_jitter_yields_nothing(jitter: float, seed: int) -> None:
    assert detect_loss_anomaly(view_of(falling_loss(seed, jitter), wild_then_calm_norm(seed, jitter))) == []


@each_case("first", [101, 120, 139])
@each_case("value", [np.nan, np.inf])
def test_first_step_with_a_non_finite_loss_is_reported_as_critical(first: int, value: float) -> None:
    loss = falling_loss(0)
    loss[first:] = value
    (finding,) = detect_loss_anomaly(view_of(loss, wild_then_calm_norm(0)))
    assert finding.kind is Kind.LOSS_ANOMALY
    assert finding.severity is Severity.CRITICAL
    assert finding.suspects == ()
    assert finding.window.first_step == first
    assert f"since step {first}" in finding.summary
    assert "and still is" in finding.summary
    assert finding.seconds_lost == pytest.approx((NUM_STEPS - first) * 0.240)


def test_nan_gradient_norm_is_critical_even_if_the_loss_is_finite() -> None:
    norm = changed(wild_then_calm_norm(0), slice(125, None), np.nan)
    (finding,) = detect_loss_anomaly(view_of(falling_loss(0), norm))
    assert (finding.severity, finding.window.first_step) == (Severity.CRITICAL, 125)


def test_short_infinite_gradient_norm_of_a_loss_scaler_is_only_a_warning() -> None:
    (finding,) = detect_loss_anomaly(view_of(falling_loss(0), changed(wild_then_calm_norm(0), [110, 111], np.inf)))
    assert finding.severity is Severity.WARNING
    assert "finite again" in finding.summary


def test_nan_loss_of_the_unfinished_last_step_is_reported() -> None:
    loss = np.append(falling_loss(0), np.nan)  # step 140 never finished
    (finding,) = detect_loss_anomaly(view_of(loss, wild_then_calm_norm(0)))
    assert finding.window.first_step == NUM_STEPS


def whole_run(loss: FloatArray) -> RunView:
    """The window holds every step."""
    view = view_of(loss, np.zeros(0))
    return replace(view, steps=np.arange(NUM_STEPS), step_ns=np.full(NUM_STEPS, 1e9))


@each_case("name", RECORDED)
def test_recorded_healthy_loss_yields_nothing(name: str) -> None:
    assert detect_loss_anomaly(whole_run(RECORDED[name])) == []


@each_case("first", [20, 30, 45, 80, 139])
@each_case("name", CALM)
def test_a_recorded_loss_that_jumps_by_two_in_one_step_is_found(name: str, first: int) -> None:
    loss = RECORDED[name].copy()
    loss[first] += 2.0
    (finding,) = detect_loss_anomaly(whole_run(loss))
    assert finding.window.first_step == first
    assert finding.severity is Severity.INFO


@each_case("first", [30, 45, 80])
@over_seeds(range(5))
def test_a_jump_by_two_is_found_while_the_loss_still_falls_fast(first: int, seed: int) -> None:
    loss = falling_loss(seed)
    loss[first] += 2.0
    (finding,) = detect_loss_anomaly(whole_run(loss))
    assert finding.window.first_step == first


def test_small_jump_of_a_loss_near_zero_yields_nothing() -> None:
    loss = falling_loss(0) - 2.98
    loss[130] = 0.3
    assert detect_loss_anomaly(whole_run(loss)) == []


@each_case("times", [1.8, 3.0])
@each_case("first", [105, 125])
@over_seeds(range(5))
def test_lasting_loss_jump_is_critical_and_starts_at_the_first_high_step(times: float, first: int, seed: int) -> None:
    loss = changed(falling_loss(seed), slice(first, None), times)
    (finding,) = detect_loss_anomaly(view_of(loss, wild_then_calm_norm(seed)))
    assert finding.severity is Severity.CRITICAL
    assert finding.window.first_step == first
    assert finding.evidence["values"] == NUM_STEPS - first
    assert finding.confidence > 0.9


@over_seeds(range(10))
def test_single_loss_spike_that_recovers_is_info(seed: int) -> None:
    norm = changed(wild_then_calm_norm(seed), [118], 15.0)
    (finding,) = detect_loss_anomaly(view_of(changed(falling_loss(seed), [118, 119], 2.5), norm))
    assert finding.severity is Severity.INFO
    assert "recovered after 2 values" in finding.summary
    assert "gradient norm jumped" in finding.summary


def test_repeated_loss_spikes_are_a_warning() -> None:
    (finding,) = detect_loss_anomaly(view_of(changed(falling_loss(1), [105, 115, 125, 135], 2.5), np.zeros(0)))
    assert finding.severity is Severity.WARNING
    assert "4 such jumps" in finding.summary


@each_case("times", [8.0, 30.0])
@over_seeds(range(10))
def test_lasting_gradient_norm_jump_is_a_warning(times: float, seed: int) -> None:
    norm = changed(wild_then_calm_norm(seed), slice(120, None), times)
    (finding,) = detect_loss_anomaly(view_of(falling_loss(seed), norm))
    assert finding.severity is Severity.WARNING
    assert abs(finding.window.first_step - 120) <= 1
    assert finding.seconds_lost == 0.0


def test_gradient_norm_that_triples_yields_nothing_even_after_calm_steps() -> None:
    norm = changed(wild_then_calm_norm(3, jitter=0.05), slice(120, None), 3.0)
    assert detect_loss_anomaly(view_of(falling_loss(3), norm)) == []


def test_loss_spike_before_the_window_is_not_reported() -> None:
    assert detect_loss_anomaly(view_of(changed(falling_loss(1), [92], 3.0), wild_then_calm_norm(1))) == []


def test_nan_loss_three_steps_after_the_window_is_not_reported() -> None:
    loss = np.append(falling_loss(0), [3.0, 3.0, np.nan])
    assert detect_loss_anomaly(view_of(loss, wild_then_calm_norm(0))) == []


def test_a_run_without_samples_yields_nothing() -> None:
    assert detect_loss_anomaly(make_view(GRIDS[0])) == []
