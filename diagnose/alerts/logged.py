"""The findings log as people read it: a page of findings, each with the actions of people.

    filter, state --Findings, FindingActions--> LogPage: the newest findings first

The rows are untrusted: every client that may write to the collector can store anything here.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from diagnose.alerts.onset import Onset
from diagnose.alerts.quiet import Quiet, Quiets, quiets_in
from diagnose.findings import Basis, Severity
from diagnose.model.run_state import local_time
from telemetry.finding_log import Action, Change
from telemetry.stores.interface import Reader
from telemetry.stores.queries import FindingActions, FindingCount, FindingDecisions, Findings
from telemetry.stores.queries.findings import FindingFilter

MOST_DECIDED = 500
"""Acknowledged or silenced findings that a filter can select: the newest ones."""


class LogState(StrEnum):
    """The state of a finding in the log. Acknowledged and silenced findings are not resolved."""

    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"
    SILENCED = "silenced"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAction:
    """What a person did about a finding."""

    action: str
    at_ns: int
    who: str
    text: str
    until_ns: int

    @property
    def in_words(self) -> str:
        """The action in words: ``2026-11-27 14:03:20 Ada silenced it until 2026-11-27 16:00:00: fan is replaced``."""
        until = f" until {local_time(self.until_ns)}" if self.action == Action.SILENCE else ""
        text = f": {self.text}" if self.text else ""
        return f"{local_time(self.at_ns)} {self.who} {_WORDS.get(self.action, self.action)}{until}{text}"


_WORDS: dict[str, str] = {
    Action.ACKNOWLEDGE: "acknowledged it",
    Action.REOPEN: "withdrew the acknowledgement",
    Action.NOTE: "wrote",
    Action.SILENCE: "silenced it",
    Action.END_SILENCE: "ended the silence",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFinding:
    """A finding of the log with its newest state."""

    run_id: str
    attempt: int
    fingerprint: str
    raised_ns: int
    changed_ns: int
    is_resolved: bool
    kind: str
    severity: Severity
    onset: Onset | None
    hosts: tuple[str, ...]
    ranks: str
    device: str
    stage: str
    summary: str
    next_step: str
    seconds_lost: float
    basis: Basis
    cause: str
    actions: tuple[LoggedAction, ...] = ()
    """What people did about the finding, the oldest action first."""
    quiet: Quiet | None = None

    @property
    def since_ns(self) -> int:
        """When the problem began: the onset if it is known and before the alert fired, else when the alert fired."""
        return min(self.onset.at_ns, self.raised_ns) if self.onset and self.onset.at_ns else self.raised_ns

    def state(self, now_ns: int) -> LogState:
        if self.is_resolved:
            return LogState.RESOLVED
        if self.quiet is not None and self.quiet.acknowledged:
            return LogState.ACKNOWLEDGED
        if self.quiet is not None and self.quiet.is_on(now_ns):
            return LogState.SILENCED
        return LogState.FIRING


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """A page of findings, and the number of all findings that the filter selects."""

    findings: tuple[LoggedFinding, ...] = ()
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionsOfFindings:
    """The actions on some findings."""

    by_finding: Mapping[tuple[str, int], tuple[LoggedAction, ...]] = field(default_factory=dict)
    """Fingerprint and time of raising -> actions, the oldest first."""
    quiets: Quiets = field(default_factory=Quiets)


def log_page(
    reader: Reader, chosen: FindingFilter, state: LogState | None, now_ns: int, *, offset: int = 0, limit: int = 50
) -> LogPage:
    """The findings that a filter selects, the newest first. Blocks on queries.

    ``state``: select only findings in this state, or findings in any state if None.

    Raises:
        UnreachableError: the store does not answer.
    """
    selected = _in_state(reader, chosen, state, now_ns)
    if selected is None:
        return LogPage()
    total = sum(reader.read(FindingCount(**asdict(selected)))["findings"].to_pylist())
    rows = reader.read(Findings(**asdict(selected), offset=offset, limit=limit)).to_pylist() if total else []
    actions = actions_of(reader, tuple({row["fingerprint"] for row in rows}))
    return LogPage(findings=tuple(_finding(row, actions) for row in rows), total=total)


def actions_of(reader: Reader, fingerprints: tuple[str, ...]) -> ActionsOfFindings:
    """The newest actions on the findings with these fingerprints, and the decisions that are in force."""
    if not fingerprints:
        return ActionsOfFindings()
    rows = reader.read(FindingActions(fingerprints=fingerprints)).to_pylist()
    by_finding: dict[tuple[str, int], tuple[LoggedAction, ...]] = {}
    for row in reversed(rows):
        key = row["fingerprint"], row["raised_ns"]
        values = {name: row[name] for name in ("action", "at_ns", "who", "text", "until_ns")}
        by_finding[key] = (*by_finding.get(key, ()), LoggedAction(**values))
    decisions = reader.read(FindingDecisions(fingerprints=fingerprints)).to_pylist() if rows else []
    return ActionsOfFindings(by_finding=by_finding, quiets=quiets_in(decisions))


def _in_state(reader: Reader, chosen: FindingFilter, state: LogState | None, now_ns: int) -> FindingFilter | None:
    """The filter with the condition of a state added, or None if nothing can match."""
    if state in (None, LogState.FIRING, LogState.RESOLVED):
        return replace(chosen, state=str(state or ""))
    unresolved = replace(chosen, state=str(LogState.FIRING))
    quiets = quiets_in(reader.read(FindingDecisions()).to_pylist())
    if state is LogState.SILENCED:
        silenced = [name for name, row in quiets.silenced.items() if row["until_ns"] > now_ns]
        return replace(unresolved, fingerprints=tuple(silenced[-MOST_DECIDED:])) if silenced else None
    decided = [key for key, row in quiets.acknowledged.items() if row["action"] == Action.ACKNOWLEDGE][-MOST_DECIDED:]
    if not decided:
        return None
    fingerprints, raised = zip(*decided, strict=True)
    return replace(unresolved, fingerprints=fingerprints, raised_at_ns=raised)


def _finding(row: Mapping[str, Any], actions: ActionsOfFindings) -> LoggedFinding:
    key = row["fingerprint"], row["raised_ns"]
    names = ("run_id", "attempt", "fingerprint", "raised_ns", "kind", "ranks", "device", "stage")
    more = ("summary", "next_step", "seconds_lost", "cause")
    return LoggedFinding(
        **{name: row[name] for name in (*names, *more)},
        changed_ns=row["at_ns"],
        is_resolved=row["state"] == Change.RESOLVED,
        severity=Severity(row["severity"]) if row["severity"] in set(Severity) else Severity.INFO,
        onset=_onset(row),
        hosts=tuple(filter(None, row["hosts"].split(","))),
        basis=Basis(row["basis"]) if row["basis"] in set(Basis) else Basis.MEASURED,
        actions=actions.by_finding.get(key, ()),
        quiet=actions.quiets.of(*key),
    )


def _onset(row: Mapping[str, Any]) -> Onset | None:
    if row["onset_step"] < 0:
        return None
    return Onset(step=row["onset_step"], at_ns=max(0, row["onset_ns"]), is_exact=bool(row["onset_exact"]))
