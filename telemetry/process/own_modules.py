"""How a process of rankscope starts another one: with our modules, not with files of the user that have their names.

python -P -m MODULE    the working directory is not on the path
PYTHONPATH             leads to our packages, where they are not installed too
"""

import os
import site
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder that holds our packages: a checkout, or site-packages."""


def python_module(module: str) -> list[str]:
    """The command that runs ``module`` in this interpreter."""
    return [sys.executable, "-P", "-m", module]


def path_to_packages(environment: Mapping[str, str] = os.environ) -> str:
    """``PYTHONPATH`` for a process of ours: that of ``environment``, with our packages first."""
    given = environment.get("PYTHONPATH", "")
    if str(HOME) in (*site.getsitepackages(), site.getusersitepackages()):
        return given
    return os.pathsep.join(filter(None, (str(HOME), given)))


def path_of_this_process() -> str:
    """``PYTHONPATH`` for a process of ours that a user's program starts: what the program can import, except the files
    in the folder of its script and in the working directory."""
    left_out = _folders_of_the_user() - {HOME}
    return os.pathsep.join(path for path in sys.path if path and Path(path).resolve() not in left_out)


def _folders_of_the_user() -> set[Path]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    folders = set() if script is None else {Path(script).resolve().parent}
    with suppress(OSError):  # somebody has deleted the working directory
        folders.add(Path.cwd().resolve())
    return folders
