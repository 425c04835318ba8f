"""Adapters for training frameworks. Each class is loaded on first use, because it imports its framework.

    from rankscope.adapters import TransformersCallback

The guide ``docs/guides/adapters`` describes each adapter.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from telemetry.attach.adapters.accelerate import AccelerateTracker
    from telemetry.attach.adapters.axolotl import AxolotlPlugin
    from telemetry.attach.adapters.megatron_bridge import MegatronBridgeCallback
    from telemetry.attach.adapters.torchtitan import register_torchtitan
    from telemetry.attach.adapters.transformers import TransformersCallback

__all__ = [
    "AccelerateTracker",
    "AxolotlPlugin",
    "MegatronBridgeCallback",
    "TransformersCallback",
    "register_torchtitan",
]

MODULES = {
    "AccelerateTracker": "accelerate",
    "AxolotlPlugin": "axolotl",
    "MegatronBridgeCallback": "megatron_bridge",
    "TransformersCallback": "transformers",
    "register_torchtitan": "torchtitan",
}
"""Name -> the module of ``telemetry.attach.adapters`` that defines it."""

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name):
        """The object with a name of ``MODULES``. Its module is imported on first use."""
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(f"telemetry.attach.adapters.{MODULES[name]}"), name)
        return globals()[name]
