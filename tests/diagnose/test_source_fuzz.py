"""The readers of logs, RAS, Inspector and stacks read bad inputs in a separate process. They must not crash."""

import json
import subprocess
import sys

COUNT = 400
LIMIT_S = 240


def test_bad_evidence_does_not_crash_or_delay_a_reader_and_runs_no_code() -> None:
    command = [sys.executable, "-m", "tests.diagnose.source_fuzz", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 10
    assert outcome["read"] + outcome["refused"] == COUNT
