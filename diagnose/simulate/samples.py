"""Numbers that a run reports once a step: loss, norm of the gradient, tokens a second, MFU."""

import numpy as np

from diagnose.model.view import Series
from diagnose.simulate.conditions import Conditions
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Floats
from telemetry.stages import Stage

SAMPLES_DRAW = 4
TOKENS_A_MICROBATCH = 4096
BEST_MFU = 0.6
"""MFU of a step that were forward and backward of its microbatches alone."""


def samples(plan: SimulatedRun, conditions: Conditions, draws: Draws, step_ns: Floats) -> dict[str, Series]:
    """Metric -> its values, one a step."""
    random = draws.of(SAMPLES_DRAW)
    steps = plan.scene.steps
    step_s = step_ns / 1e9
    tokens = plan.topology.dp * plan.num_microbatches * TOKENS_A_MICROBATCH
    loss = 2.0 + 9.0 * np.exp(-((steps + 1) ** 0.5) / 12) + random.normal(0.0, 0.02, plan.num_steps)
    norm = np.exp(random.normal(0.0, 0.1, plan.num_steps))
    values = {
        "loss": loss + conditions.loss,
        "gradient-norm": norm * conditions.gradient_norm,
        "tokens-per-second": tokens / step_s,
        "mfu": BEST_MFU * _useful_s(plan) / step_s,
    }
    return {metric: Series(steps=steps, values=series) for metric, series in values.items()}


def _useful_s(plan: SimulatedRun) -> float:
    """Forward and backward of a step's microbatches on one rank."""
    each = plan.seconds(Stage.FORWARD_COMPUTE) + plan.seconds(Stage.BACKWARD_COMPUTE)
    return each * plan.num_chunks * plan.num_microbatches
