"""The entry point of group ``torch.backends``: torch calls :func:`attach` at the end of ``import torch``.

It returns after one look at the environment, unless RANKSCOPE or RANKSCOPE_COLLECTOR is set. It never raises: an error
here would break ``import torch``. It is a module of its own, with a name that no other module has, because a file of
the user may hide the packages of rankscope.
"""

import os
import sys


def attach() -> None:
    """Trace this process once it is a rank of a training job, if the environment asks for it."""
    if not (os.environ.get("RANKSCOPE") or os.environ.get("RANKSCOPE_COLLECTOR")):
        return
    try:
        # By name: nothing of rankscope is imported without the variable.
        from importlib import import_module  # noqa: PLC0415

        import_module("telemetry.attach.waiting").wait_for_rank()
    except Exception as error:
        try:
            print(f"rankscope: not attached: {error!r}", file=sys.stderr)
        except Exception:  # standard error is closed or full
            return
