"""`rankscope ablate`: real trainings, one technique more in each row."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gloo, pytest.mark.long]


def test_ablate_trains_rows_in_turns_and_prints_a_table_with_figures_of_each_row(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--techniques", "window,overlap-dp", "--steps", "4", "--rounds", "2", "--name", "abl", "--out", str(out)]
    grid = ["--dp", "2", "--pp", "1", "--tp", "1", "--microbatches", "1", "--peak-tflops", "0.05"]
    command = [sys.executable, "-P", "-m", "ui.cli", "ablate", *words, *grid, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert table == json.loads((out / "ablation.json").read_text())
    assert [row["technique"] for row in table["rows"]] == ["baseline", "sliding window", "overlap of dp"]
    assert [row["runs"] for row in table["rows"]] == [[f"abl.{row:02}.{turn}" for turn in (0, 1)] for row in range(3)]
    for row in table["rows"]:
        assert row["step_s"]["lowest"] <= row["step_s"]["median"] <= row["step_s"]["highest"]
        assert row["mfu"]["median"] > 0
        assert row["peak_memory_mib"]["median"] > 100
        assert set(row["exposed_s"]) == {"dp"}
    assert table["rows"][0]["mfu"] == table["rows"][0]["mfu_with_skipped"]
    assert table["rows"][1]["mfu"]["median"] < table["rows"][1]["mfu_with_skipped"]["median"]
    turns = [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith("round ")]
    expected = ((1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 0))
    assert turns == [f"round {turn} of 2, table row {row} (0 to 2)" for turn, row in expected]
