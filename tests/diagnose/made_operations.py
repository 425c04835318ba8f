"""Operations, samples and histories made from a seed, to put into a view of ``made_view``."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import ABSENT, Operations
from diagnose.model.view import RunView, Series
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view

FloatArray = npt.NDArray[np.float64]
GRIDS = [Topology(dp=2, pp=2, tp=2), Topology(dp=8, pp=4, tp=2), Topology(dp=4)]


def make_operations(duration_ns: FloatArray, start_ns: FloatArray | None = None) -> Operations:
    """One operation a step and rank, [steps, ranks]; NaN: none. By default, those of step n start at second n."""
    present = ~np.isnan(duration_ns)[:, None, :]
    start = np.arange(len(duration_ns))[:, None] * 1e9 + np.zeros_like(duration_ns) if start_ns is None else start_ns
    absent = np.full(present.shape, ABSENT)
    return Operations(
        start_ns=np.where(present, np.nan_to_num(start)[:, None, :], ABSENT).astype(np.int64),
        duration_ns=np.where(present, np.nan_to_num(duration_ns)[:, None, :], ABSENT).astype(np.int64),
        cpu_ns=absent.astype(np.int64),
        microbatch=absent.astype(np.int16),
        chunk=absent.astype(np.int16),
        peer=absent.astype(np.int32),
    )


def around(typical_ns: float, shape: tuple[int, ...], *, jitter: float, seed: int) -> FloatArray:
    """Log-normal durations."""
    noise: FloatArray = np.random.default_rng(seed).normal(0.0, jitter, shape)
    return typical_ns * np.exp(noise)


def with_operations(view: RunView, **duration_ns: FloatArray) -> RunView:
    """The view with one operation a step and rank in each stage named, e.g. ``data_load=...``."""
    made = {Stage[stage.upper()]: make_operations(ns) for stage, ns in duration_ns.items()}
    return replace(view, operations={**view.operations, **made})


def with_samples(view: RunView, first_step: int = 0, **values: FloatArray) -> RunView:
    """The view with a value a step from ``first_step`` on, e.g. ``gradient_norm=...``."""
    made = {
        metric.replace("_", "-"): Series(steps=np.arange(first_step, first_step + len(series)), values=series)
        for metric, series in values.items()
    }
    return replace(view, samples={**view.samples, **made})


def with_history(step_ns: FloatArray, *, num_steps: int, topology: Topology = GRIDS[0]) -> RunView:
    """A view of the last ``num_steps`` of an attempt with these step times, the first of them step 0."""
    steps = np.arange(len(step_ns))
    return replace(
        make_view(topology, num_steps=num_steps),
        steps=steps[-num_steps:],
        step_ns=step_ns[-num_steps:],
        history=Series(steps=steps, values=step_ns),
    )
