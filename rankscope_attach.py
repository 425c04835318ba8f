"""Entry points: functions that torch and frameworks call in a training that does not name rankscope.

torch.backends               :func:`attach`, at the end of ``import torch``
lightning*.callbacks_factory the other functions, for each ``Trainer`` and each ``Fabric``

Each function only reads the environment and returns, unless RANKSCOPE or RANKSCOPE_COLLECTOR is set. The functions for
Lightning also continue if a session records. The functions do not raise: an error would break ``import torch``, or the
training. This module has an unusual name, so that no file of the user hides it. The packages of rankscope have general
names. A file of the user with such a name is not imported, because it may be a program.
"""

import os
import sys

PACKAGE = "telemetry"


def attach() -> None:
    """Trace this process once it is a rank of a training job, if the environment asks for it."""
    if not _is_asked():
        return
    try:
        _wait_for_rank()
    except Exception as error:
        _report(repr(error))


def _wait_for_rank() -> None:
    if _finds_package():
        # Late, so that nothing is imported unless a variable is set.
        from importlib import import_module  # noqa: PLC0415

        import_module(f"{PACKAGE}.attach.waiting").wait_for_rank()


def _finds_package() -> bool:
    """Whether ``PACKAGE`` leads to the package of rankscope. If not, a line is printed."""
    from importlib.util import find_spec  # noqa: PLC0415

    own = os.path.join(os.path.dirname(os.path.realpath(__file__)), PACKAGE)
    spec = find_spec(PACKAGE)
    if spec is None or own in map(os.path.realpath, spec.submodule_search_locations or ()):
        return True
    _report(f"the module {PACKAGE} is {spec.origin!r}, not the package of rankscope")
    return False


def _report(reason: str) -> None:
    _say(f"rankscope: not attached: {reason}")


def lightning_callbacks() -> list[object]:
    """Callbacks for a ``lightning.pytorch.Trainer``."""
    return _callbacks("lightning", "lightning.pytorch")


def pytorch_lightning_callbacks() -> list[object]:
    """Callbacks for a ``pytorch_lightning.Trainer``."""
    return _callbacks("lightning", "pytorch_lightning")


def fabric_callbacks() -> list[object]:
    """Callbacks for a ``lightning.fabric.Fabric``."""
    return _callbacks("fabric", "lightning.fabric")


def lightning_fabric_callbacks() -> list[object]:
    """Callbacks for a ``lightning_fabric.Fabric``."""
    return _callbacks("fabric", "lightning_fabric")


def _callbacks(adapter: str, package: str) -> list[object]:
    try:
        if not (_is_asked() or _records()) or not _finds_package():
            return []
        from importlib import import_module  # noqa: PLC0415

        callbacks: list[object] = import_module(f"telemetry.attach.adapters.{adapter}").make_callbacks(package)
        return callbacks
    except Exception as error:
        _say(f"rankscope: the adapter of {package} cannot be used: {error!r}. Training is not affected")
        return []


def _is_asked() -> bool:
    return bool(os.environ.get("RANKSCOPE") or os.environ.get("RANKSCOPE_COLLECTOR"))


def _records() -> bool:
    """Whether the script has started a session."""
    session = sys.modules.get("telemetry.record.session")
    return session is not None and bool(session.current_session().recording)


def _say(line: str) -> None:
    if sys.stderr is None:  # print() would write to standard output
        return
    try:
        print(line, file=sys.stderr)
    except Exception:  # standard error is closed or full
        return
