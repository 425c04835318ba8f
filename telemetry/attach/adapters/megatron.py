"""Megatron-LM: its functions for a step, an evaluation and a checkpoint, and the microbatches of its schedules.

    train_step(iteration=7)                                          evaluate()      save_checkpoint_and_time()
    |-- forward_step(current_microbatch=0) .. backward_step() ..--|  |- evaluation -||- checkpoint -|

Compute is inferred from calls into torch, except backward: with pipelines, ``backward_step`` calls torch's engine
directly. Without the training loop of Megatron-LM (only megatron-core), steps are inferred, too.

Source: ``megatron/training/training.py`` and ``megatron/core/pipeline_parallel/schedules.py``, August 2026.
"""

import sys
from functools import wraps
from typing import Any

from telemetry.attach.adapters.calls import record_calls
from telemetry.attach.adapters.loop import ADAPTER, LOOP, harmless
from telemetry.attach.rank import followed
from telemetry.attach.seams import REPLACED, replace
from telemetry.record.recording import RECORDER
from telemetry.stages import Stage

SCHEDULES, LOOP_MODULE, VARIABLES = (
    "megatron.core.pipeline_parallel.schedules",
    "megatron.training.training",
    "megatron.training.global_vars",
)
GRADIENT_NORM = 5
"""Position of the gradient norm in the result of ``train_step``."""


def install() -> None:
    """Follow the schedules and the loop of this process. Later calls do nothing.

    Raises:
        AttributeError: this version of megatron-core has other schedules.
    """
    schedules = sys.modules[SCHEDULES]
    if hasattr(schedules.forward_step, REPLACED):
        return
    _see_microbatches(schedules)
    seams = followed()
    seams.surround(schedules, "backward_step", lambda *_, **__: seams.training.begin_backward())
    if (loop := sys.modules.get(LOOP_MODULE)) is not None:
        _see_steps(loop)
        record_calls(loop, "evaluate", Stage.EVALUATION)
        record_calls(loop, "save_checkpoint_and_time", Stage.CHECKPOINT_WRITE)
    RECORDER.mark(ADAPTER, f"megatron-core {getattr(sys.modules.get('megatron.core'), '__version__', '')}")


def _see_microbatches(schedules: Any) -> None:
    plain, training = schedules.forward_step, followed().training

    @wraps(plain)
    def forward_step(*args: Any, **kwargs: Any) -> Any:
        microbatch, chunk = kwargs.get("current_microbatch"), kwargs.get("vp_stage")
        training.place = None if not isinstance(microbatch, int) else (microbatch, -1 if chunk is None else chunk)
        try:
            return plain(*args, **kwargs)
        finally:
            training.place = None

    replace(schedules, "forward_step", forward_step)


def _see_steps(loop: Any) -> None:
    plain = loop.train_step

    @wraps(plain)
    def train_step(*args: Any, iteration: int | None = None, **kwargs: Any) -> Any:
        number = _iteration() if iteration is None else iteration
        LOOP.begin_step(number)
        given = {} if iteration is None else {"iteration": iteration}
        answer = plain(*args, **given, **kwargs)
        LOOP.end_step(number)
        _sample(answer, number)
        return answer

    replace(loop, "train_step", train_step)


def _iteration() -> int:
    """The current iteration, for versions that do not pass it; -1 if it is unknown."""
    try:
        return int(sys.modules[VARIABLES].get_args().curr_iteration)
    except Exception as error:
        LOOP.report(error)
        return -1


@harmless
def _sample(answer: Any, number: int) -> None:
    if isinstance(answer, tuple) and len(answer) > GRADIENT_NORM:
        LOOP.sample({"grad_norm": answer[GRADIENT_NORM]}, number)
