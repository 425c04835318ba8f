"""What a GPU check found: one line that its process prints, and the report of all of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Status = Literal["passed", "failed", "not-run"]
MARK = "OUTCOME "
"""Begins the line of the outcome. The last such line counts."""
LAST_WORDS = 2000
"""Characters of a failed check's output that the report keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One check."""

    name: str
    status: Status
    reason: str = ""
    """Why it failed or did not run. If it passed: what was not possible on this machine."""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)


def say(status: Status, figures: Mapping[str, Any], reason: str = "") -> None:
    """Print the result of a check, in its own process."""
    print(MARK + json.dumps({"status": status, "reason": reason, "figures": figures}), flush=True)


def outcome_of(name: str, printed: str, *, exit_status: int | None, seconds: float, limit_s: float) -> Outcome:
    """From what a check's process printed. ``exit_status`` None: it was ended at its limit."""
    said = next((line for line in reversed(printed.splitlines()) if line.startswith(MARK)), None)
    if exit_status is None:
        reason = f"not over after {limit_s:.0f} s: {printed[-LAST_WORDS:]}"
        return Outcome(name=name, status="failed", reason=reason, seconds=seconds)
    if exit_status != 0 or said is None:
        reason = f"exit status {exit_status}: {printed[-LAST_WORDS:]}"
        return Outcome(name=name, status="failed", reason=reason, seconds=seconds)
    return Outcome(name=name, seconds=seconds, **json.loads(said.removeprefix(MARK)))


def report(outcomes: Iterable[Outcome], machine: Mapping[str, Any]) -> dict[str, Any]:
    """The content of ``gpu.json``."""
    checks = [asdict(one) for one in outcomes]
    return {"schema": 1, "passed": not any(one["status"] == "failed" for one in checks), **machine, "checks": checks}


def write_report(folder: Path, content: Mapping[str, Any]) -> Path:
    """Write ``gpu.json``. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gpu.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
