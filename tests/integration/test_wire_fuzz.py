"""Whatever reads what strangers send against thousands of bad inputs, in a process of its own: it must survive."""

import json
import subprocess
import sys

from ui.cli.commands.import_run import Format

COUNT = 4_000
OVER_HTTP = 400
FILES = 120
LIMIT_S = 240


def test_no_bad_input_crashes_the_readers_holds_them_up_or_makes_them_grow() -> None:
    command = [sys.executable, "-m", "tests.integration.wire_fuzz", "--count", str(COUNT), "--http", str(OVER_HTTP)]
    done = subprocess.run([*command, "--seed", "1"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT
    assert sum(outcome["over_http"].values()) == OVER_HTTP


def test_no_damaged_file_of_another_tool_crashes_an_importer_holds_it_up_or_is_executed() -> None:
    command = [sys.executable, "-m", "tests.integration.import_fuzz", "--count", str(FILES), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] + outcome["refused"] == FILES * len(Format)
    assert all(outcome["by_format"].get(form.value) for form in Format), outcome["by_format"]
