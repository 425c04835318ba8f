"""The file of a simulated run's truth."""

import os
import stat
from pathlib import Path

from diagnose.simulate.truth import check_writable


def test_a_new_file_for_the_truth_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        check_writable(tmp_path / "truth.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "truth.json").stat().st_mode) == 0o600
