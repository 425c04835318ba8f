"""A virtual environment with the packages of one extra and no others. It consists of links and is made in seconds.

    pyproject.toml --extra--> requirements --metadata of what is installed here--> all that they bring
                                                                                        | links
    VENV/lib/python3.X/site-packages:  rankscope telemetry trainer diagnose ui  +  those packages <-'

An import of a package that the extra does not declare fails there, as it does after ``pip install 'rankscope[EXTRA]'``.
With ``EXTRAS_BY=pip`` in the environment (``make extras``) a wheel is built and pip installs it, which takes minutes.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from telemetry.version import __version__

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BY_PIP = os.environ.get("EXTRAS_BY") == "pip"
PACKAGES = ("rankscope", "telemetry", "trainer", "diagnose", "ui")


def extras() -> list[str]:
    """The extras that the project declares."""
    return list(PROJECT["optional-dependencies"])


def declared(extra: str) -> set[str]:
    """The direct requirements of the extra; '' means the project without an extra."""
    return {canonicalize_name(requirement.name) for requirement in _asked(extra)}


def closure(extra: str) -> dict[str, Distribution]:
    """All distributions that ``pip install 'rankscope[extra]'`` brings, by name; '' is no extra.

    Raises:
        PackageNotFoundError: one of them is not installed here.
    """
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(one, "") for one in _asked(extra)]
    while waiting:
        requirement, of_extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                found[name] = distribution(name)
                waiting += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return found


def _asked(extra: str) -> Iterator[Requirement]:
    """The project's own requirements, with extras of the project unfolded."""
    texts = PROJECT["dependencies"] + (PROJECT["optional-dependencies"][extra] if extra else [])
    for requirement in map(Requirement, texts):
        if requirement.name == PROJECT["name"]:
            for one in requirement.extras:
                yield from _asked(one)
        else:
            yield requirement


class Alone:
    """A virtual environment with one extra."""

    def __init__(self, folder: Path, extra: str) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        (_install if BY_PIP else _link_all)(folder, extra)

    def run(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``python`` of the environment with these arguments and wait for its end."""
        return subprocess.run(self._command(arguments), env=self._environment(), **SAID, **options)

    def start(self, *arguments: object, log: Path) -> subprocess.Popen[bytes]:
        """Start the same command in the background. Its output goes to ``log``."""
        with log.open("wb") as sink:
            return subprocess.Popen(self._command(arguments), env=self._environment(), stdout=sink, stderr=sink)

    def _command(self, arguments: Iterable[object]) -> list[str]:
        return [str(self.python), *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        """The environment of this process without the variables that lead to other packages."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return kept | {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "NO_COLOR": "1", "COLUMNS": "200"}


SAID: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 120, "cwd": "/"}


@cache
def wheel() -> Path:
    """The wheel of this tree, built once."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-wheel-"))
    atexit.register(shutil.rmtree, folder)
    source = folder / "source"  # a build leaves files in the tree
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(build, check=True)
    return next(folder.glob("*.whl"))


def _install(folder: Path, extra: str) -> None:
    venv.EnvBuilder(symlinks=True, with_pip=True).create(folder)
    wanted = f"{wheel()}[{extra}]" if extra else str(wheel())
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
    ]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), wanted], check=True)


def _link_all(folder: Path, extra: str) -> None:
    venv.EnvBuilder(symlinks=True).create(folder)
    site = next((folder / "lib").glob("python3*")) / "site-packages"
    _link(site, closure(extra).values())
    for package in PACKAGES:
        (site / package).symlink_to(ROOT / package)
    _describe(site)


def _link(site: Path, found: Iterable[Distribution]) -> None:
    """Link what ``found`` installed: whole folders, or file by file where several share a folder (``google``)."""
    tops = {one: {file.parts[0] for file in one.files or ()} for one in found}
    owners = Counter(top for own in tops.values() for top in own)
    for one, own in tops.items():
        for top in own:
            if owners[top] == 1 and top != ".." and not top.endswith(".pth"):
                (site / top).symlink_to(Path(str(one.locate_file(top))))
        for file in one.files or ():
            if owners[file.parts[0]] > 1 or file.parts[0] == "..":
                _link_file(site / file, Path(str(one.locate_file(file))))


def _link_file(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(link):
        link.symlink_to(target)


def _describe(site: Path) -> None:
    """The metadata of this project, as a wheel has it."""
    lines = ["Metadata-Version: 2.4", f"Name: {PROJECT['name']}", f"Version: {__version__}"]
    lines += [f"Requires-Dist: {text}" for text in PROJECT["dependencies"]]
    for extra, texts in PROJECT["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {text}; extra == "{extra}"' for text in texts)]
    folder = site / f"{PROJECT['name']}-{__version__}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
