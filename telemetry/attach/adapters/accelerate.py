"""Accelerate: a tracker that samples what the script logs. It also records ``save_state``.

Accelerate has no loop. Steps are inferred from calls into torch, so numbers belong to the step that is inferred, and
the ``step`` that the script logs is not used. ``Accelerator`` calls trackers on the main process only.
"""

import os
from typing import Any

import accelerate
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker

from telemetry.attach.adapters.calls import record_calls, see_calls
from telemetry.attach.adapters.loop import LOOP, Loop, follow, harmless, with_loss
from telemetry.stages import Stage

FRAMEWORK = f"accelerate {accelerate.__version__}"


class AccelerateTracker(GeneralTracker):  # type: ignore[misc]
    """``Accelerator(log_with=AccelerateTracker())``. Each rank starts a session if there is none.

    Under torchrun and `accelerate launch` it does so before ``Accelerator`` creates process groups, otherwise in
    ``Accelerator.prepare``.
    """

    name = "rankscope"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self) -> None:
        super().__init__()
        _install()

    @property
    def tracker(self) -> Loop:
        """The loop of this process."""
        return LOOP

    @harmless
    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
        """Called by ``Accelerator.log``."""
        LOOP.sample(with_loss(values))


@harmless
def _install() -> None:
    record_calls(Accelerator, "save_state", Stage.CHECKPOINT_WRITE)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        follow(FRAMEWORK, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        see_calls(Accelerator, "prepare", _follow)


@harmless
def _follow(accelerator: Any, *_: Any, **__: Any) -> None:
    follow(FRAMEWORK, accelerator.process_index, accelerator.num_processes)
