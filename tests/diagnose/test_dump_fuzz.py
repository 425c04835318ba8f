"""Many damaged dumps are read in a separate process. The reader must not crash, and must not execute their content."""

import json

from tests.forkserver import output_of

COUNT = 1_500


def test_bad_dump_does_not_crash_or_delay_the_reader_and_runs_no_code() -> None:
    outcome = json.loads(output_of("-m", "tests.diagnose.dump_fuzz", "--count", str(COUNT), "--seed", "1"))
    assert outcome["read"] > COUNT // 100
    assert outcome["read"] + outcome["refused"] == COUNT
