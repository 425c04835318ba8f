"""Ray Train: the names of a worker, and what its training function reports.

    controller --> worker: train context --> process group  <- the worker becomes a rank here
                                         --> RANK, LOCAL_RANK --> the training function, on its own thread
                                                                    '- ray.train.report(metrics, checkpoint)

The process group is created before the variables of a launcher are set. Steps and stages are inferred.

Source: ``ray/train/v2/_internal/execution/worker_group/worker_group.py``, ``ray/train/v2/api/train_fn_utils.py`` and
``ray/train/torch/config.py`` of Ray 2.60.
"""

import sys
from functools import wraps
from types import SimpleNamespace
from typing import Any

from telemetry.attach.adapters.loop import ADAPTER, LOOP, harmless
from telemetry.attach.rank import followed
from telemetry.attach.seams import REPLACED, replace
from telemetry.record.recording import RECORDER
from telemetry.stages import Stage

TRAIN = "ray.train"


def install() -> None:
    """Follow the reports of this worker. Later calls do nothing.

    Raises:
        AttributeError: this version of Ray has no such function.
    """
    train: Any = sys.modules[TRAIN]
    plain = train.report
    if hasattr(plain, REPLACED):
        return
    seams, saving = followed(), SimpleNamespace(report=lambda *args, **kwargs: plain(*args, **kwargs))
    seams.surround(saving, "report", lambda *_, **__: seams.training.begin_checkpoint(Stage.CHECKPOINT_WRITE))

    @wraps(plain)
    def report(metrics: Any, checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        _sample(metrics)
        call = plain if checkpoint is None else saving.report
        return call(metrics, checkpoint, *args, **kwargs)

    replace(train, "report", report)
    RECORDER.mark(ADAPTER, f"ray {getattr(sys.modules['ray'], '__version__', '')}")


@harmless
def _sample(metrics: Any) -> None:
    LOOP.sample(metrics)
