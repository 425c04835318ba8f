"""Lightning Fabric: checkpoints and logged numbers, for ``lightning.fabric`` and for ``lightning_fabric``.

Fabric has no loop. Steps are inferred from calls into torch. Fabric calls :func:`make_callbacks` for each ``Fabric``,
through an entry point (``rankscope_attach.py``).
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from telemetry.attach.adapters.calls import record_calls, see_calls
from telemetry.attach.adapters.lightning import framework_of
from telemetry.attach.adapters.loop import LOOP, follow, harmless, may_record, with_loss
from telemetry.record.session import current_session
from telemetry.stages import Stage


class FabricCallback:
    """Callbacks of Fabric. They show the rank of this process."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._is_followed = False

    def on_after_setup(self, fabric: Any, module: Any) -> None:
        """``fabric.setup`` was called."""
        self._follow(fabric)

    def on_after_optimizer_step(self, strategy: Any, optimizer: Any) -> None:
        """An optimizer has stepped. Shows the rank if only an optimizer was set up."""
        self._follow(strategy)

    @harmless
    def _follow(self, ranked: Any) -> None:
        if not self._is_followed:
            self._is_followed = True
            follow(self._framework, ranked.global_rank, ranked.world_size)


def make_callbacks(package: str) -> list[Any]:
    """The callback for a new ``Fabric`` of this package. Empty if recording is switched off."""
    if not may_record():
        return []
    framework = framework_of(package)
    if current_session().recording:
        follow(framework, 0, 1)  # before Fabric creates process groups. Uses the session's rank
    fabric = import_module(package).Fabric
    record_calls(fabric, "save", Stage.CHECKPOINT_WRITE)
    see_calls(fabric, "log_dict", _see_logged)
    return [FabricCallback(framework)]


@harmless
def _see_logged(fabric: Any, metrics: Mapping[str, object], step: int | None = None) -> None:
    for logger in fabric.loggers:
        see_calls(type(logger), "log_metrics", _sample_logged)
    if not fabric.loggers:
        LOOP.sample(with_loss(metrics))


@harmless
def _sample_logged(logger: Any, metrics: Mapping[str, object], step: int | None = None, **_: Any) -> None:
    """Sample what a logger receives, under the current step: the script may count in another way."""
    LOOP.sample(with_loss(metrics))
