"""Tracks which optimizer is in its step, and which optimizer ends the steps of the training.

- The optimizer that stepped first ends every step. If it no longer exists or steps, another optimizer does.
- A scaler or an optimizer can call other optimizers. Only the outermost call counts.
- torch does not report that an optimizer raised. Such an optimizer is forgotten when the next optimizer begins.
"""

import weakref
from typing import Any

import torch

MAX_OTHER_STEPS = 10
"""After this number of steps of other optimizers in a row, the newest one ends the steps."""


class Optimizers:
    """The optimizers of this process. Holds no reference to them."""

    def __init__(self) -> None:
        self._stepping: list[int] = []
        """Ids of the optimizers and scalers that are in their step, the outermost first."""
        self._has_closure = False
        self._was_left = False
        """Whether a forward or backward began after the optimizer, not in its closure: it has probably raised."""
        self._closer: weakref.ref[Any] | None = None
        self._num_others = 0
        self.has_stepped = False
        """Whether an optimizer has ended a step."""

    @property
    def are_stepping(self) -> bool:
        return bool(self._stepping)

    @property
    def have_closer(self) -> bool:
        """Whether it is known which optimizer ends the steps."""
        return self._closer is not None

    def begin(self, who: Any, *, with_closure: bool) -> bool:
        """An optimizer or a scaler begins. Returns whether it is the outermost."""
        if id(who) in self._stepping or self._was_left:
            self.forget()  # it raised in its last step
        self._stepping.append(id(who))
        self._has_closure |= with_closure
        return len(self._stepping) == 1

    def end(self, who: Any) -> bool:
        """An optimizer or a scaler has stepped. Returns whether it was the outermost."""
        if id(who) not in self._stepping:
            return False
        self.has_stepped = True
        del self._stepping[self._stepping.index(id(who)) :]
        if self._stepping:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """No optimizer is in its step any more."""
        self._stepping = []
        self._has_closure = self._was_left = False

    def see_call(self) -> None:
        """A forward or a backward begins."""
        self._was_left = bool(self._stepping) and not self._has_closure

    def set_closer(self, owner: Any) -> None:
        """``owner`` ends the steps from now on."""
        self._closer, self._num_others = weakref.ref(owner), 0

    def ends_steps(self, optimizer: Any) -> bool:
        """Whether this optimizer, which has stepped, ends the steps."""
        closer = None if self._closer is None else self._closer()
        if closer is optimizer:
            self._num_others = 0
            return True
        self._num_others += 1
        if closer is None or self._num_others >= MAX_OTHER_STEPS:
            self.set_closer(optimizer)
            return True
        return False


def steps_done(optimizer: torch.optim.Optimizer) -> int | None:
    """The number of steps of an optimizer, from its state; None if reading it would wait for a device or for other
    ranks."""
    for state in optimizer.state.values():
        step = state.get("step") if isinstance(state, dict) else None
        if type(step) is torch.Tensor:  # not a DTensor
            return int(step) if step.device.type == "cpu" and step.numel() == 1 else None
        return step if isinstance(step, int) else None
    return None


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether these arguments of ``Optimizer.step`` have a closure. Wrappers also pass None."""
    return callable(args[0]) if args else kwargs.get("closure") is not None
