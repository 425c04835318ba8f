"""Whether a file or a folder of the user hides a package of rankscope: most of their names are general words."""

from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages of rankscope."""


def check_own_packages(*names: str) -> None:
    """Find these packages without running them.

    Raises:
        ImportError: one of them is not the one that belongs to this package. The message names the file to rename.
    """
    for name in names:
        found = _path_of(name)
        if found is not None and HOME not in found.parents:
            raise ImportError(f"{found} hides the package {name} of rankscope: rename it")


def _path_of(name: str) -> Path | None:
    """The file or the folder that ``import name`` uses; None if it has none."""
    try:
        spec = find_spec(name)
    except ValueError:  # a module that a program made, and that comes from no file
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).resolve()
    return path.parent if path.name == "__init__.py" else path
