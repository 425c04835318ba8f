"""All files of a job are private to its user."""

from tests.scenarios.demo_run import Demo
from tests.telemetry.files.test_private_files import modes_below


def test_all_files_of_a_demo_are_private_without_a_umask(demo_of_a_slow_rank: Demo) -> None:
    """Collector, launcher, ranks and agent write store, spool, evidence, logs and ground truth."""
    found = modes_below(demo_of_a_slow_rank.out)
    assert found == {"folders": {0o700}, "files": {0o600}}
