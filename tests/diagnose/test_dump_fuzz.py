"""Many damaged dumps are read in a separate process. The reader must not crash, and must not execute their content."""

import json
import subprocess
import sys

COUNT = 1_500
LIMIT_S = 240


def test_bad_dump_does_not_crash_or_delay_the_reader_and_runs_no_code() -> None:
    command = [sys.executable, "-m", "tests.diagnose.dump_fuzz", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT
