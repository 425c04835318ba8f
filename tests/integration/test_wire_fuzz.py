"""Readers of untrusted data get thousands of bad inputs in a separate process, which must survive."""

import json
import subprocess
import sys

from ui.cli.commands.import_run import Format

COUNT = 600
FILES = 25
LIMIT_S = 240


def test_bad_inputs_do_not_crash_block_or_grow_the_wire_readers() -> None:
    """Without a collector: ``test_security`` and ``test_hostile_batches`` send such inputs to one."""
    command = [sys.executable, "-m", "tests.integration.wire_fuzz", "--count", str(COUNT), "--http", "0", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT


def test_damaged_files_do_not_crash_or_block_an_importer_and_are_not_executed() -> None:
    command = [sys.executable, "-m", "tests.integration.import_fuzz", "--count", str(FILES), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] + outcome["refused"] == FILES * len(Format)
    assert all(outcome["by_format"].get(form.value) for form in Format), outcome["by_format"]
