"""Settings of torch.compile for our functions. They are private to torch. Without them, these functions do nothing."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Function = Callable[..., Any]


def keep_shortcut_of_dynamo(plain: Function, function: Function) -> None:
    """Let torch.compile accept ``function`` as ``Module.__call__``. It then traces a module directly at its
    ``forward``. Otherwise it also traces every call of a module, and compiles more slowly."""
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)  # a module that is imported later finds our function
        if getattr(module, "unpatched_nn_module_call", None) is plain:
            module.unpatched_nn_module_call = function  # type: ignore[union-attr]


def skip_in_dynamo(function: Function, *, with_callees: bool = False) -> None:
    """Let torch.compile not start a graph at this function. ``with_callees``: nor at functions that it calls."""
    with suppress(Exception):
        from torch._C._dynamo import eval_frame  # noqa: PLC0415  (private)

        action = eval_frame._FrameAction
        of_callees = action.SKIP if with_callees else action.DEFAULT
        strategy = eval_frame._FrameExecStrategy(action.SKIP, of_callees)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
