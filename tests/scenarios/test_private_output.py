"""What the processes of a job leave on the disk is for its user alone."""

from tests.scenarios.demo_run import Demo
from tests.telemetry.files.test_private_files import modes_below


def test_all_that_a_demo_creates_without_a_umask_is_private(demo_of_a_slow_rank: Demo) -> None:
    """Store, spool, evidence, logs and ground truth: of collector, launcher, ranks and agent."""
    found = modes_below(demo_of_a_slow_rank.out)
    assert found == {"folders": {0o700}, "files": {0o600}}
