"""Events of a run that charts show: findings, restarts, link losses and marks."""

from dataclasses import dataclass
from enum import StrEnum

from diagnose.findings import Severity


class EventKind(StrEnum):
    """What an event in a chart is."""

    FINDING = "finding"
    RESTART = "restart"
    """The start of an attempt, or a decision of the driver."""
    FLAP = "flap"
    MARK = "mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened in a run, or several marks of one name at one time."""

    kind: EventKind
    name: str
    text: str
    run_id: str
    attempt: int
    step: int
    """A stored step of the attempt."""
    at_ns: int
    severity: Severity | None = None
    """The severity of a finding. None for other events."""
    rank: int | None = None
    host: str = ""
    stage: str = ""
    last_step: int = 0
    """The last step of a finding that lasts. ``last_ns`` is the begin of this step."""
    last_ns: int = 0

    @property
    def key(self) -> str:
        """Identifies the view that the event opens."""
        rank = "" if self.rank is None else self.rank
        return f"{self.kind}/{self.run_id}/{self.attempt}/{self.step}/{rank}/{self.host}/{self.stage}"
