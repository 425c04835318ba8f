"""rankscope as torch and frameworks find it once it is installed: a folder for PYTHONPATH with its entry points."""

import os
import tomllib
from pathlib import Path

from telemetry.process.child_process import HOME


def installed(folder: Path, **variables: str) -> dict[str, str]:
    """An environment in which rankscope is installed. Variables of rankscope in that of the tests are left out."""
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    metadata = folder / "installed" / "rankscope-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: rankscope\nVersion: 0\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join([*lines, ""]))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE")}
    paths = (str(metadata.parent), str(HOME), inherited.get("PYTHONPATH", ""))
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **variables}
