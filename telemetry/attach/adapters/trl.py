"""TRL: generation and the other parts of a step of reinforcement learning, from TRL's own profiling.

TRL's trainers are trainers of transformers, whose adapter records their steps. Parts of a step are contexts with a name
(``trl.extras.profiling.ProfilingContext``), such as ``GRPOTrainer.transformers.generate``.

    generation        the stage ``rollout``
    all other parts   a sample: seconds, under the first characters of its name, such as ``calculate-rewards-s``
"""

from time import monotonic_ns
from typing import Any

from trl.extras.profiling import ProfilingContext

from telemetry.attach.adapters.calls import see_calls
from telemetry.attach.adapters.loop import LOOP, harmless
from telemetry.record.layout import NAME_BYTES
from telemetry.stages import Stage

STARTED = "rankscope_started_ns"
"""Attribute of an open context with the time at which it began."""


def install() -> None:
    """Record every context that is entered from now on."""
    see_calls(ProfilingContext, "__enter__", _begin)
    see_calls(ProfilingContext, "__exit__", _end)


@harmless
def _begin(context: Any) -> None:
    setattr(context, STARTED, monotonic_ns())
    if _is_generation(context.name):
        LOOP.begin_stage(Stage.ROLLOUT)


@harmless
def _end(context: Any, *error: Any) -> None:
    if _is_generation(context.name):
        LOOP.end_stage(Stage.ROLLOUT)
        return
    part = context.name.partition(".")[2].strip("_").replace("_", "-").replace(".", "-")
    metric = f"{part[: NAME_BYTES - 2]}-s"
    LOOP.sample({metric: (monotonic_ns() - getattr(context, STARTED)) / 1e9})


def _is_generation(name: str) -> bool:
    return name.rpartition(".")[2].startswith("generate")
