"""The names of a worker of Ray Train or verl. A launcher's variables cannot be used: Ray Train sets them after the
process group is created, and in verl they describe one of several groups.

    verl   actor of Ray   rollout_standalone_0CheckpointEngineWorker_1:3
                          WG_PREFIX           class                 node, place on it
           all workers of a group differ in the last part only. Each group numbers its ranks from 0, and is a run
"""

import os
import sys
from contextlib import suppress
from typing import Any

from telemetry.attach.deciding import Names


def names_of_worker(names: Names) -> Names:
    """The names of a worker of verl or Ray Train; ``names`` for any other process. Never raises."""
    return _names_in_verl() or _names_in_ray_train() or names


def _names_in_ray_train() -> Names | None:
    """The names of a worker of Ray Train; None for any other process.

    The run is the name of the experiment (``RunConfig.name``), unless RANKSCOPE_RUN is set.
    """
    train: Any = sys.modules.get("ray.train")
    if train is not None:
        with suppress(Exception):  # no worker, or an older version without a context at this time
            context = train.get_context()
            experiment, local_rank = context.get_experiment_name(), context.get_local_rank()
            if isinstance(experiment, str) and isinstance(local_rank, int):
                return Names(run=None if os.environ.get("RANKSCOPE_RUN") else experiment, local_rank=local_rank)
    return None


def _names_in_verl() -> Names | None:
    """The names of a worker of verl; None for any other process.

    The run consists of RANKSCOPE_RUN or the job of Ray, and the group. The role is the class, unless RANKSCOPE_ROLE is
    set. The local rank is not known: verl sets LOCAL_RANK to 0 for each worker.
    """
    ray: Any = sys.modules.get("ray")
    prefix = os.environ.get("WG_PREFIX", "")
    if ray is None or not prefix or os.environ.get("WG_BACKEND") != "ray":
        return None
    with suppress(Exception):  # not the actor itself, but a process that it started
        context = ray.get_runtime_context()
        group = context.get_actor_name().rpartition("_")[0]
        if group.startswith(prefix):
            run = os.environ.get("RANKSCOPE_RUN") or f"verl-{context.get_job_id()}"
            role = None if os.environ.get("RANKSCOPE_ROLE") else group.removeprefix(prefix)
            return Names(run=f"{run}-{group}", local_rank=None, role=role)
    return None
