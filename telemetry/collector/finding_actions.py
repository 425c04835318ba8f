"""Checks actions of people on findings, and stores them as rows. The log of the collector has a line for each.

command, dashboard --POST /v1/finding-actions, a token that may write--> finding_actions --query--> watcher, pages
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from telemetry.errors import NotStoredError, UsageError
from telemetry.finding_log import MAX_SILENCE_S, Action
from telemetry.printable import log, printable
from telemetry.stores.interface import Reader, Store
from telemetry.stores.queries import FindingDecisions, Findings
from telemetry.tables import FINDING_ACTIONS, owned
from telemetry.wire.finding_action import FindingAction

SECOND_NS = 10**9
Clock = Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionLog:
    """Checks and stores actions. May be used by any thread."""

    store: Store
    reader: Reader
    clock_ns: Clock = time.time_ns

    def accept(self, action: FindingAction) -> str:
        """Store an action. Returns its id.

        Raises:
            NotStoredError: there is no such finding.
            UsageError: a silence has no end, or ends in the past or too late.
            UnreachableError: the store does not answer.
        """
        now_ns = self.clock_ns()
        until_ns = _checked_end(action, now_ns)
        finding = self._finding(action)
        action_id = secrets.token_hex(8)
        row = {
            "fingerprint": action.fingerprint,
            "raised_ns": finding["raised_ns"],
            "at_ns": self._after_others(action.fingerprint, now_ns),
            "action_id": action_id,
            "action": str(action.action),
            "who": action.who,
            "text": action.text,
            "until_ns": until_ns,
        }
        rows = pa.Table.from_pylist([row], schema=FINDING_ACTIONS)
        self.store.insert("finding_actions", owned(rows, finding["run_id"], finding["attempt"]))
        of_run = f"finding {action.fingerprint} of run {printable(finding['run_id'])}"
        log(f"rankscope collect: {action.action} of {of_run} by {printable(action.who)!r}")
        return action_id

    def _after_others(self, fingerprint: str, now_ns: int) -> int:
        """The time of an action: later than earlier decisions about the finding, also if the clock was set back.
        Otherwise an old silence would stay valid after a person ended it."""
        newest = self.reader.read(FindingDecisions(fingerprints=(fingerprint,), limit=1))
        return max([now_ns, *(int(at_ns) + 1 for at_ns in newest["at_ns"].to_pylist())])

    def _finding(self, action: FindingAction) -> dict[str, Any]:
        """The finding that was raised at the time in the action. Without a time, the newest with the fingerprint."""
        rows = self.reader.read(Findings(fingerprints=(action.fingerprint,), limit=1000)).to_pylist()
        for row in rows:
            if action.raised_ns in (0, row["raised_ns"]):
                return dict(row)
        raise NotStoredError(
            f"no finding {action.fingerprint} in the log", hint="`rankscope alerts log` lists findings"
        )


def _checked_end(action: FindingAction, now_ns: int) -> int:
    if action.action is not Action.SILENCE:
        return 0
    if not now_ns < action.until_ns <= now_ns + MAX_SILENCE_S * SECOND_NS:
        raise UsageError(
            "the end of a silence must be in the future, at most a year from now",
            hint="set until_ns to nanoseconds since the epoch",
        )
    return action.until_ns
