"""torch's hooks of all optimizers. They are registered during ``import torch``, and look up their functions late.

A hook must not register or remove a hook while torch iterates over them: torch would raise into the training.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Hook = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
is_compiling = torch.compiler.is_compiling


def _nothing(optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """The hook while no function is set."""


class StepHooks:
    """Functions called before and after each step of each optimizer of this process. They must not raise."""

    def __init__(self) -> None:
        self.first: Hook = _nothing
        """Called before a step, and before the function ``before``."""
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self._is_registered = False

    def register(self) -> None:
        """Register the hooks with torch. Later calls do nothing."""
        if self._is_registered:
            return
        self._is_registered = True
        register_optimizer_step_pre_hook(self._before)
        register_optimizer_step_post_hook(self._after)

    def _before(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if is_compiling():
            return
        self.first(optimizer, arguments, keywords)
        self.before(optimizer, arguments, keywords)

    def _after(self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if not is_compiling():
            self.after(optimizer, arguments, keywords)


STEP_HOOKS = StepHooks()
