"""The readers of logs, RAS, Inspector and stacks read bad inputs in a separate process. They must not crash."""

import json

from tests.forkserver import output_of

COUNT = 400


def test_bad_evidence_does_not_crash_or_delay_a_reader_and_runs_no_code() -> None:
    outcome = json.loads(output_of("-m", "tests.diagnose.source_fuzz", "--count", str(COUNT), "--seed", "1"))
    assert outcome["read"] > COUNT // 10
    assert outcome["read"] + outcome["refused"] == COUNT
