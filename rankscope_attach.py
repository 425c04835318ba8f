"""The entry point of group ``torch.backends``: torch calls :func:`attach` at the end of ``import torch``.

It reads two variables, and returns if neither RANKSCOPE nor RANKSCOPE_COLLECTOR is set. It never raises: an error here
would break ``import torch``. Its name is one that no other module has, because a file of the user may have the name of
a package of rankscope. Such a file is not imported: it may be a program.
"""

import os
import sys

PACKAGE = "telemetry"


def attach() -> None:
    """Trace this process once it is a rank of a training job, if the environment asks for it."""
    if not (os.environ.get("RANKSCOPE") or os.environ.get("RANKSCOPE_COLLECTOR")):
        return
    try:
        _wait_for_rank()
    except Exception as error:
        _report(repr(error))


def _wait_for_rank() -> None:
    # Nothing is imported without the variable.
    from importlib import import_module  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    own = os.path.join(os.path.dirname(os.path.realpath(__file__)), PACKAGE)
    spec = find_spec(PACKAGE)
    if spec is not None and own not in map(os.path.realpath, spec.submodule_search_locations or ()):
        _report(f"the module {PACKAGE} is {spec.origin!r}, not the package of rankscope")
        return
    import_module(f"{PACKAGE}.attach.waiting").wait_for_rank()


def _report(reason: str) -> None:
    if sys.stderr is None:  # print() would write to standard output
        return
    try:
        print(f"rankscope: not attached: {reason}", file=sys.stderr)
    except Exception:  # standard error is closed or full
        return
