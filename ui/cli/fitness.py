"""Is this machine fit for rankscope, and who owns the names we import by."""

import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from telemetry.settings import spool_of

PACKAGES = ("rankscope", "telemetry", "trainer", "diagnose", "ui")
LIBRARIES = {
    "torch": "the trainer and GPU clocks; pip install 'rankscope[train]'",
    "pyarrow": "the agent; pip install 'rankscope[agent]'",
    "psutil": "the agent; pip install 'rankscope[agent]'",
    "chdb": "the embedded store; pip install 'rankscope[store]'",
    "clickhouse-driver": "a ClickHouse server; pip install 'rankscope[store]'",
    "dash": "the dashboard; pip install 'rankscope[ui]'",
}
MIN_SPOOL_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at."""

    name: str
    fit: bool
    found: str
    hint: str = ""


def fitness() -> list[Check]:
    """All that is looked at, in order."""
    return [*_names(), *_libraries(), _python(), _spool_space(), _gpu()]


def fitness_object(checks: list[Check]) -> dict[str, Any]:
    """As JSON."""
    rows = [{"name": one.name, "fit": one.fit, "found": one.found, "hint": one.hint} for one in checks]
    return {"schema": 1, "checks": rows}


def fitness_table(checks: list[Check]) -> Table:
    """For people."""
    table = Table("", "check", "found", "hint", box=None, header_style="bold")
    for check in checks:
        table.add_row("[green]ok[/]" if check.fit else "[red]no[/]", check.name, escape(check.found), check.hint)
    return table


def _names() -> Iterator[Check]:
    """Most of the package names are general words: another distribution or a file of the user may shadow them."""
    home = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        origin = Path(spec.origin or "").resolve() if spec else None
        ours = origin is not None and home in origin.parents
        yield Check(
            name=f"package {package}",
            fit=ours,
            found=str(origin.parent if origin else "missing"),
            hint="" if ours else "another package or folder of this name comes first on sys.path: start elsewhere",
        )


def _libraries() -> Iterator[Check]:
    for name, needed_by in LIBRARIES.items():
        try:
            yield Check(name=name, fit=True, found=importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Check(name=name, fit=False, found="not installed", hint=f"needed by {needed_by}")


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    fit = sys.version_info >= (3, 11)
    return Check(name="Python", fit=fit, found=version, hint="" if fit else "3.11 or newer")


def _spool_space() -> Check:
    """Of the folder that ranks started here would write into, or of what will hold it."""
    folder = spool_of().absolute()
    there = next(one for one in (folder, *folder.parents) if one.exists())
    free = shutil.disk_usage(there).free
    return Check(
        name="room for rank files",
        fit=free >= MIN_SPOOL_BYTES,
        found=f"{free / 2**30:.1f} GiB free in {folder}",
        hint="" if free >= MIN_SPOOL_BYTES else "set RANKSCOPE_SPOOL to a local disk with 2 GiB or more",
    )


def _gpu() -> Check:
    """A GPU is welcome and not needed."""
    return Check(name="NVIDIA driver", fit=True, found=shutil.which("nvidia-smi") or "none: ranks run on the CPU")
