"""The labelled dumps of real jobs, read from their folder."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
REAL = Path(os.environ.get("RANKSCOPE_REAL_DATA", ROOT.parent / "shared" / "data")) / "flight-recorder"


def cases() -> list[Path]:
    """Folders of dumps, each with the truth in ``fault_injection.log``."""
    return sorted(path.parent for path in REAL.glob("*/fault_injection.log"))


def needs_real_dumps() -> pytest.MarkDecorator:
    return pytest.mark.skipif(not cases(), reason=f"no labelled dumps in {REAL}; RANKSCOPE_REAL_DATA says where")


def injected(case: Path) -> set[int]:
    """The ranks that were broken on purpose."""
    found = re.search(r"Fault ranks: \[([\d, ]+)\]", (case / "fault_injection.log").read_text())
    assert found is not None
    return {int(rank) for rank in found[1].split(",")}
