"""DeepSpeed: steps, checkpoints, evaluations and numbers, from calls of its engine.

    engine(batch)  backward  step   engine(batch)  backward  step                     save_checkpoint
                                                              '- _take_model_step
    |---- step 7: two microbatches ----------------------------------|               |- checkpoint -|

The engine takes a step at the boundary of accumulated gradients, and may skip the update if gradients overflow.
``global_steps`` also counts such steps. Forward, backward and torch's optimizer inside the engine are inferred.

Source: ``deepspeed/runtime/engine.py``, ``runtime/pipe/engine.py`` and ``monitor/monitor.py`` of DeepSpeed 0.19.
"""

import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any

from telemetry.attach.adapters.calls import see_calls
from telemetry.attach.adapters.loop import ADAPTER, LOOP, harmless
from telemetry.attach.rank import followed
from telemetry.attach.seams import REPLACED, replace
from telemetry.record.recording import RECORDER
from telemetry.stages import Stage

ENGINE, PIPELINE, MONITOR = "deepspeed.runtime.engine", "deepspeed.runtime.pipe.engine", "deepspeed.monitor.monitor"
EVENT_NAMES = {"train_loss": "loss", "lr": "learning-rate"}
"""Last part of the name of an event, such as ``Train/Samples/train_loss``, -> name of the sample."""


def install() -> None:
    """Follow every engine of this process. Later calls do nothing.

    Raises:
        AttributeError: this version of DeepSpeed has another engine.
    """
    engine = sys.modules[ENGINE].DeepSpeedEngine
    if hasattr(engine._take_model_step, REPLACED):
        return
    _see_steps(engine)
    _see_loads(engine)
    seams = followed()
    for name in ("save_checkpoint", "save_16bit_model"):
        seams.surround(engine, name, lambda *_, **__: seams.training.begin_checkpoint(Stage.CHECKPOINT_WRITE))
    if (pipeline := sys.modules.get(PIPELINE)) is not None:
        seams.surround(
            pipeline.PipelineEngine, "eval_batch", lambda *_, **__: seams.training.begin_forward(with_grad=False)
        )
    if (monitor := sys.modules.get(MONITOR)) is not None:
        see_calls(monitor.MonitorMaster, "write_events", _sample_events)
    RECORDER.mark(ADAPTER, f"deepspeed {getattr(sys.modules['deepspeed'], '__version__', '')}")


def _see_steps(engine: Any) -> None:
    plain = engine._take_model_step

    @wraps(plain)
    def _take_model_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        _sample_rate(self)
        answer = plain(self, *args, **kwargs)
        _end_step(self)
        return answer

    replace(engine, "_take_model_step", _take_model_step)


def _see_loads(engine: Any) -> None:
    """After a checkpoint is loaded, continue with its number of steps."""
    plain = engine.load_checkpoint

    @wraps(plain)
    def load_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = plain(self, *args, **kwargs)
        _count_on(self)
        return answer

    replace(engine, "load_checkpoint", load_checkpoint)


@harmless
def _sample_rate(engine: Any) -> None:
    rates = engine.get_lr()
    LOOP.sample({"lr": rates[0] if rates else None}, engine.global_steps)


@harmless
def _end_step(engine: Any) -> None:
    followed().training.see_step(engine, engine.global_steps)
    LOOP.sample({"grad_norm": getattr(engine, "_global_grad_norm", None)}, engine.global_steps - 1)


@harmless
def _count_on(engine: Any) -> None:
    followed().training.count_from(engine.global_steps)


@harmless
def _sample_events(monitor: Any, event_list: Sequence[tuple[str, Any, int]]) -> None:
    """Sample numbers that the engine has read from the device for a monitor, such as the loss. On rank 0 only."""
    for name, value, _ in event_list:
        last = name.rpartition("/")[2]
        LOOP.sample({EVENT_NAMES.get(last, last): value})
