"""Whether a file or a folder of the user hides the package ``telemetry``, which does the recording."""

import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages of rankscope."""


def check_own_packages() -> None:
    """Find ``telemetry`` without running it.

    Raises:
        ImportError: it is not the one that belongs to this package. The message names the file to rename.
    """
    found = _origin("telemetry")
    if found is not None and HOME not in found.parents:
        raise ImportError(f"{found} hides the package telemetry of rankscope: rename it")


def _origin(name: str) -> Path | None:
    """The file or the folder that ``import name`` uses; None if there is none."""
    module = sys.modules.get(name)
    if module is not None and module.__spec__ is None:  # made by hand, as tests do
        return None
    spec = find_spec(name)
    if spec is None:
        return None
    if spec.origin is None:  # a folder without __init__.py
        return next((Path(folder).resolve() for folder in spec.submodule_search_locations or ()), None)
    path = Path(spec.origin).resolve()
    return path.parent if path.name == "__init__.py" else path
