"""torchtitan: a handler of its structured logger, and the numbers that it logs.

    step_start          fetching_batch  fwd_bwd  optim   checkpoint_save   eval        step_end
    |---- step 7 ---------------------------------------||- checkpoint -||- evaluation -|

torchtitan saves and evaluates within its step. Here the step ends as soon as one of them begins. torchtitan begins a
checkpoint at every step, and adds the tag ``checkpoint_save`` to the step if it really saves. Forward, backward and
optimizer are inferred within the step, because ``fwd_bwd`` and ``optim`` contain collectives. ``fwd_bwd`` is recorded,
too, because nothing can be inferred within the replay of a CUDA graph.

Source: ``torchtitan/observability/structured_logger`` and ``torchtitan/components/metrics.py`` of torchtitan 0.3.
"""

import logging
import os
import sys
from collections.abc import Mapping
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import Any

from telemetry.attach.adapters.loop import LOOP, follow, harmless
from telemetry.record.recording import RECORDER
from telemetry.stages import Stage

TRAINING = "training"
"""The source of a pretraining. Actors of reinforcement learning have other sources and rank numbers."""
STAGES = {
    "fetching_batch": Stage.DATA_LOAD,
    "checkpoint_save": Stage.CHECKPOINT_WRITE,
    "eval": Stage.EVALUATION,
}
"""Name of a span -> stage. Apart from these, only ``step`` and ``fwd_bwd`` are recorded."""
STEP_STATE = "torchtitan.observability.structured_logger.step_state"
METRICS = "torchtitan.components.metrics"
METRIC_NAMES = {
    "loss_metrics/global_avg_loss": "loss",
    "grad_norm": "gradient-norm",
    "throughput(tps)": "tokens-per-second",
    "mfu(%)": "mfu",
}
"""Name of a number that torchtitan logs -> name of the sample."""


def register_torchtitan(*, structured_logger: logging.Logger, rank: int, source: str, **_: Any) -> None:
    """A factory for ``TITAN_STRUCT_LOGGER_HANDLERS``. Starts a session if there is none. Never raises."""
    try:
        if source != TRAINING:
            return
        version = getattr(sys.modules.get("torchtitan"), "__version__", "")
        follow(f"torchtitan {version}", rank, int(os.environ.get("WORLD_SIZE", "1")))
        structured_logger.addHandler(TorchtitanHandler())
        see_metrics(sys.modules.get(METRICS))
    except Exception as error:
        LOOP.report(error)


class TorchtitanHandler(logging.Handler):
    """Receives the records of the structured logger. Follows the thread of the first step only."""

    def __init__(self) -> None:
        super().__init__()
        self._thread: int | None = None
        self._number = -1
        """The number of the newest step."""
        self._began_ns = 0
        """Begin of the open ``fwd_bwd``; 0 if none is open."""

    @harmless
    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(record, "log_type_name", None)
        if not isinstance(name, str) or getattr(record, "task_name", None) is not None:
            return  # a task of asyncio: its spans do not nest with others
        what, _, edge = name.rpartition("_")
        if name == "metric_value":
            LOOP.sample({str(getattr(record, "event_name", "")): getattr(record, "value", None)})
        elif what == "step":
            self._see_step(edge, getattr(record, "step", None))
        elif self._thread != get_ident():
            return
        elif what == "fwd_bwd":
            self._see_both(edge)
        elif what in STAGES:
            self._see_stage(STAGES[what], edge)

    def _see_step(self, edge: str, number: object) -> None:
        if edge == "start" and isinstance(number, int):
            self._thread, self._number = get_ident(), number
            LOOP.begin_step(number)
        elif edge == "error":
            self._number = -1  # the step stays open: it was interrupted
        elif edge == "end":
            LOOP.end_step(self._number)

    def _see_both(self, edge: str) -> None:
        now, began_ns = monotonic_ns(), self._began_ns
        self._began_ns = now if edge == "start" else 0
        if edge == "end" and began_ns:
            RECORDER.record_span(Stage.FORWARD_BACKWARD, began_ns, now - began_ns)

    def _see_stage(self, stage: Stage, edge: str) -> None:
        if edge == "start":
            if stage is not Stage.DATA_LOAD:
                LOOP.end_step(self._number)
            LOOP.begin_stage(stage)
        elif edge == "error":
            LOOP.end_stage(stage, completed=False)
            if stage is Stage.DATA_LOAD:
                LOOP.end_step(self._number, completed=False)  # the data ended
        elif edge == "end":
            LOOP.end_stage(stage, completed=stage is not Stage.CHECKPOINT_WRITE or "checkpoint_save" in _step_tags())


def _step_tags() -> tuple[str, ...]:
    """Tags of the current step."""
    step_state = sys.modules.get(STEP_STATE)
    return () if step_state is None else step_state.get_step_tags()


def see_metrics(metrics: Any) -> None:
    """Record numbers that torchtitan logs. All ranks call its loggers, although most of these discard the numbers."""
    for kind in (metrics.BaseLogger, metrics.LoggerContainer) if metrics is not None else ():
        kind.log = _recorded(kind.log)


def _recorded(plain: Any) -> Any:
    @wraps(plain)
    def log(self: Any, metrics: dict[str, Any], step: int) -> None:
        _sample(metrics, step)
        plain(self, metrics, step)

    return log


@harmless
def _sample(metrics: Mapping[str, Any], step: int) -> None:
    numbers = {name: metrics[key] for key, name in METRIC_NAMES.items() if key in metrics}
    if rates := [value for key, value in metrics.items() if key.startswith("lr/")]:
        numbers["learning-rate"] = rates[0]
    if numbers.get("loss", 0.0) < 0:
        del numbers["loss"]  # ranks without the last stage of a pipeline log -1 for each microbatch
    if "mfu" in numbers:
        numbers["mfu"] /= 100
    LOOP.sample(numbers, step=step)
