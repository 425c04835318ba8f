"""What people decided about findings. A quiet finding is acknowledged or silenced, so people are not notified.

    acknowledge ----------------------------> quiet until the finding is resolved    (reopen withdraws it)
    silence until T ------------> T           quiet until T, also if the finding returns    (end-silence ends it)

Hooks that pass silences on, such as the one of Alertmanager, still receive a quiet finding.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from telemetry.finding_log import Action

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What people decided about one finding."""

    acknowledged: bool = False
    silenced_until_ns: int = 0
    """End of the newest silence, wall clock. 0: none."""
    who: str = ""
    """Who acknowledged it. If nobody did: who silenced it."""
    text: str = ""
    """The note of this person."""

    def is_on(self, now_ns: int) -> bool:
        return self.acknowledged or self.silenced_until_ns > now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiets:
    """The decisions about all findings."""

    acknowledged: Mapping[tuple[str, int], Row] = field(default_factory=dict)
    """Fingerprint and time of raising -> the row of its acknowledgement or reopening."""
    silenced: Mapping[str, Row] = field(default_factory=dict)
    """Fingerprint -> the row of its newest silence, or of the end of it."""

    def of(self, fingerprint: str, raised_ns: int) -> Quiet | None:
        """The decisions about one finding, or None if nobody decided anything."""
        acknowledged = self.acknowledged.get((fingerprint, raised_ns)) if raised_ns else None
        silenced = self.silenced.get(fingerprint)
        is_acknowledged = acknowledged is not None and acknowledged["action"] == Action.ACKNOWLEDGE
        shown = acknowledged if is_acknowledged else silenced or acknowledged
        if shown is None:
            return None
        return Quiet(
            acknowledged=is_acknowledged,
            silenced_until_ns=silenced["until_ns"] if silenced is not None else 0,
            who=shown["who"],
            text=shown["text"],
        )


def quiets_in(actions: Iterable[Row]) -> Quiets:
    """The decisions in rows of ``FindingDecisions``. The rows may be in any order."""
    acknowledged: dict[tuple[str, int], Row] = {}
    silenced: dict[str, Row] = {}
    for row in sorted(actions, key=lambda row: (row["at_ns"], row["action_id"])):
        if row["action"] in (Action.ACKNOWLEDGE, Action.REOPEN):
            acknowledged[row["fingerprint"], row["raised_ns"]] = row
        elif row["action"] in (Action.SILENCE, Action.END_SILENCE):
            silenced[row["fingerprint"]] = row
    return Quiets(acknowledged=acknowledged, silenced=silenced)
