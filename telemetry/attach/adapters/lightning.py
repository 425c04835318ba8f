"""Lightning: a callback of ``Trainer``, for ``lightning.pytorch`` and for ``pytorch_lightning``.

    on_train_epoch_start  fetch  on_train_batch_start ... on_train_batch_end   fetch  on_train_batch_start ...
    |---- step n: one batch, or several if gradients accumulate -----------|---- step n+1

Lightning calls :func:`make_callbacks` for each ``Trainer``, through an entry point (``rankscope_attach.py``). Steps are
batches after which an optimizer stepped, as Lightning's loggers count them. The first step is 0.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from telemetry.attach.adapters.calls import record_calls, see_calls
from telemetry.attach.adapters.loop import LOOP, follow, harmless, may_record, with_loss
from telemetry.record.session import current_session
from telemetry.stages import Stage


class LightningHooks:
    """The events of a Trainer. :func:`make_callback` combines it with the class ``Callback`` of a package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._number = 0
        self._num_optimized = 0
        """Lightning's ``global_step`` at the end of the newest step."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickle: a strategy that spawns processes pickles the callbacks."""
        return make_callback, (self._package,)

    @harmless
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        follow(framework_of(self._package), trainer.global_rank, trainer.world_size)
        for logger in trainer.loggers:
            see_calls(type(logger), "log_metrics", _sample_logged)

    @harmless
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._num_optimized = trainer.global_step
        self._number = getattr(trainer.fit_loop.epoch_loop, "_batches_that_stepped", trainer.global_step)

    @harmless
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        LOOP.begin_step(self._number)

    @harmless
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        LOOP.begin_step(self._number)

    @harmless
    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self._num_optimized:
            return
        self._num_optimized = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        rate = trainer.optimizers[0].param_groups[0].get("lr")
        LOOP.sample({"loss": loss, "learning_rate": rate})
        LOOP.end_step(self._number)
        self._number += 1
        LOOP.begin_step(self._number)

    @harmless
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        LOOP.end_step(self._number, completed=False)

    @harmless
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        LOOP.begin_stage(Stage.EVALUATION)

    @harmless
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        LOOP.end_stage(Stage.EVALUATION)

    on_test_start, on_test_end = on_validation_start, on_validation_end


def make_callbacks(package: str) -> list[Any]:
    """The callback for a new ``Trainer`` of this package. Empty if recording is switched off."""
    if not may_record():
        return []
    if current_session().recording:
        follow(framework_of(package), 0, 1)  # before Lightning creates process groups. Uses the session's rank
    return [make_callback(package)]


def make_callback(package: str) -> Any:
    """The callback for a new ``Trainer`` of this package."""
    record_calls(import_module(package).Trainer, "save_checkpoint", Stage.CHECKPOINT_WRITE)
    hooks = type("RankscopeCallback", (LightningHooks, import_module(f"{package}.callbacks").Callback), {})
    return hooks(package)


def framework_of(package: str) -> str:
    """Name and version of a package."""
    return f"{package} {import_module(package).__version__}"


@harmless
def _sample_logged(logger: Any, metrics: Mapping[str, object], step: int | None = None, **_: Any) -> None:
    """Sample what a logger receives. Lightning has converted it to numbers, so this does not wait for a device."""
    LOOP.sample(with_loss(metrics), step)
