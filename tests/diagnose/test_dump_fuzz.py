"""The reader of dumps against thousands of bad ones, in a process of its own: it must survive, and run nothing."""

import json
import subprocess
import sys

COUNT = 3_000
LIMIT_S = 240


def test_no_bad_dump_crashes_the_reader_holds_it_up_or_runs_code() -> None:
    command = [sys.executable, "-m", "tests.diagnose.dump_fuzz", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT
