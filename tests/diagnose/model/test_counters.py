"""Growth of GPU counters in each step."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.model.gpus import growth_in_steps
from diagnose.model.operations import Ints
from diagnose.model.view import RunView
from telemetry.host_metrics import Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import BEGAN_NS, SECOND_NS, made_fleet, made_series, timed
from tests.diagnose.made_view import make_view

STEP_S = 2
SPAN_S = 600


def steps(num_steps: int = 200) -> RunView:
    view = make_view(Topology(dp=2), num_steps=num_steps)
    return timed(replace(view, step_ns=np.full(num_steps, STEP_S * float(SECOND_NS))))


def growth(at_s: Ints, value: np.ndarray, view: RunView) -> np.ndarray:  # type: ignore[type-arg]
    one = made_series(Metric.GPU_THROTTLE_POWER_NS, "gpu-00", "gpu0", BEGAN_NS + at_s * SECOND_NS, value)
    fleet = made_fleet(one)
    return growth_in_steps(replace(view, fleet=fleet), [one.series, None])[:, 0]


def test_one_short_sample_interval_does_not_change_the_growth_per_step() -> None:
    at_s = np.sort(np.append(np.arange(0, SPAN_S, 5), 101))
    grown = growth(at_s, at_s * 0.5, steps())
    assert grown == pytest.approx(np.full(200, STEP_S * 0.5))


def test_growth_after_a_constant_period_is_counted_only_just_before_the_new_value() -> None:
    at_s = np.array([*range(0, 100, 5), 155, 215, 275, *range(300, SPAN_S, 5)])
    value = np.where(at_s < 100, at_s, np.where(at_s < 300, 95, at_s - 300 + 100))
    grown = growth(at_s, value.astype(np.float64), steps())
    assert grown[52:145].sum() == 0
    assert grown[148:150].sum() == pytest.approx(5, abs=4)


def test_counter_reset_is_not_counted_as_a_decrease() -> None:
    at_s = np.arange(0, SPAN_S, 5)
    grown = growth(at_s, np.where(at_s < 200, 1000 + at_s, at_s - 200).astype(np.float64), steps())
    assert grown.min() >= 0
    assert grown.sum() == pytest.approx(395, abs=6)
