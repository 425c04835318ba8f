"""Adapters that need no code of the user. They are installed if a process that becomes a rank has the framework."""

import sys
from importlib import import_module

from telemetry.record.recording import warn

ADAPTERS = {
    "deepspeed.runtime.engine": "telemetry.attach.adapters.deepspeed",
    "megatron.core.pipeline_parallel.schedules": "telemetry.attach.adapters.megatron",
    "ray.train": "telemetry.attach.adapters.ray_train",
    "torchft.process_group": "telemetry.attach.adapters.torchft",
    "transformers.trainer": "telemetry.attach.adapters.transformers",
    "trl.extras.profiling": "telemetry.attach.adapters.trl",
}
"""Module of a framework -> its adapter, which has a function ``install``."""


def install_adapters() -> None:
    """Call ``install`` of each adapter whose framework is imported. Later calls do nothing.

    If an adapter does not fit the version of its framework, a line is printed and the loop is inferred.
    """
    for framework, adapter in ADAPTERS.items():
        if framework not in sys.modules:
            continue
        try:
            import_module(adapter).install()
        except Exception as error:
            warn(f"the adapter of {framework} cannot be used: {error!r}. Training is not affected")
