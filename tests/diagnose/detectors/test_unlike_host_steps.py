"""Unlike hosts in jobs whose steps continue, become slower, or stop."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.unlike_host import detect_unlike_host
from telemetry.host_metrics import Metric
from tests.diagnose.made_fleet import timed
from tests.diagnose.made_hosts import (
    odd,
    seen,
    stepping,
    the_finding,
    told,
)


def test_unlike_host_that_slows_nothing_is_not_reported() -> None:
    assert detect_unlike_host(seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=stepping())) == []


def test_host_that_became_unlike_when_steps_became_slower_is_named() -> None:
    view = seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=stepping(slower_from=50))
    finding = the_finding(view)
    assert finding.hosts == ["gpu-03"]
    assert finding.seconds_lost > 60
    assert "x as long since step 150" in finding.summary


@pytest.mark.parametrize("from_s", [20.0, 100.0])
def test_host_that_was_unlike_while_steps_were_fast_is_not_reported(from_s: float) -> None:
    values = told(change=odd(Metric.GPU_POWER_W, 0.3, from_s=from_s))
    assert detect_unlike_host(seen(values, view=stepping(slower_from=50))) == []


def test_slow_steps_without_an_unlike_host_yield_nothing() -> None:
    assert detect_unlike_host(seen(told(), view=stepping(slower_from=50))) == []


def test_unlike_host_is_not_reported_when_slow_steps_have_recovered() -> None:
    view = stepping()
    step_ns = view.step_ns * np.where((np.arange(120) >= 50) & (np.arange(120) < 100), 1.5, 1.0)
    view = timed(replace(view, step_ns=step_ns * view.step_ns.sum() / step_ns.sum()))
    assert detect_unlike_host(seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=view)) == []


def test_unlike_host_is_named_when_no_more_steps_finish() -> None:
    view = stepping(num_steps=120)
    standing = replace(
        view,
        steps=view.steps[:40],
        step_ns=view.step_ns[:40],
        step_start_ns=None if view.step_start_ns is None else view.step_start_ns[:40],
    )
    finding = the_finding(seen(told(change=odd(Metric.HOST_CPU_BUSY, 0.0)), view=standing))
    assert finding.hosts == ["gpu-03"]
    assert "no step has finished for" in finding.summary
