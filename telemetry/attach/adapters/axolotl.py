"""Axolotl: a plugin that adds the callback of transformers. Its line in the YAML file of a training:

plugins:
  - rankscope.adapters.AxolotlPlugin
"""

from typing import Any

from axolotl.integrations.base import BasePlugin
from transformers.trainer import DEFAULT_CALLBACKS

from telemetry.attach.adapters.transformers import TransformersCallback


class AxolotlPlugin(BasePlugin):  # type: ignore[misc]
    """Adds the callback to every trainer that Axolotl creates."""

    def add_callbacks_pre_trainer(self, cfg: Any, model: Any) -> list[Any]:
        """The callback for a trainer. Empty if every trainer has it already."""
        return [] if TransformersCallback in DEFAULT_CALLBACKS else [TransformersCallback()]
