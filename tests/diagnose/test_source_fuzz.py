"""The readers of logs, RAS, Inspector and stacks against bad inputs, in a process of its own: they must survive."""

import json
import subprocess
import sys

COUNT = 800
LIMIT_S = 240


def test_no_bad_evidence_crashes_a_reader_holds_it_up_or_runs_code() -> None:
    command = [sys.executable, "-m", "tests.diagnose.source_fuzz", "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    outcome = json.loads(done.stdout)
    assert outcome["read"] > COUNT // 10
    assert outcome["read"] + outcome["refused"] == COUNT
