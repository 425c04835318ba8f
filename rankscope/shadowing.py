"""Check whether a file or a folder of the user hides a package of rankscope. Most packages have general names."""

from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds the packages of rankscope."""


def check_own_packages(*names: str) -> None:
    """Check that these names lead to the packages of rankscope. Does not import the packages.

    Raises:
        ImportError: a name leads to another file. The message says which file to rename.
    """
    for name in names:
        found = _path_of(name)
        if found is not None and HOME not in found.parents:
            raise ImportError(f"{found} hides the package {name} of rankscope: rename it")


def _path_of(name: str) -> Path | None:
    """The file or the folder that ``import name`` uses; None if there is none."""
    try:
        spec = find_spec(name)
    except ValueError:  # a program created this module without a file
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).resolve()
    return path.parent if path.name == "__init__.py" else path
