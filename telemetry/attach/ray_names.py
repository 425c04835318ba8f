"""The names of a worker of Ray Train. Its process group is created before the variables of a launcher are set."""

import os
import sys
from contextlib import suppress
from typing import Any

from telemetry.attach.deciding import Names


def names_of_worker(names: Names) -> Names:
    """``names``, or those of Ray Train if this process is one of its workers. The run is the name of the experiment
    (``RunConfig.name``), unless RANKSCOPE_RUN is set. Never raises."""
    train: Any = sys.modules.get("ray.train")
    if train is not None:
        with suppress(Exception):  # no worker, or an older version without a context at this time
            context = train.get_context()
            experiment, local_rank = context.get_experiment_name(), context.get_local_rank()
            if isinstance(experiment, str) and isinstance(local_rank, int):
                return Names(run=None if os.environ.get("RANKSCOPE_RUN") else experiment, local_rank=local_rank)
    return names
