"""What operators see of a job."""

from dataclasses import dataclass

from trainer.drive.job import Job
from trainer.drive.records import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The answer of the driver to ``GET /v1/status``."""

    job: Job
    decisions: list[Decision]
    """Oldest first."""
