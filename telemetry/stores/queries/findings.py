"""Queries about the findings log."""

from dataclasses import dataclass

from telemetry.finding_log import Action, Change
from telemetry.stores.interface import Fields, among

_STATE = (
    *("at_ns", "state", "kind", "severity", "onset_step", "onset_ns", "onset_exact", "hosts", "ranks"),
    *("device", "stage", "summary", "next_step", "seconds_lost", "basis", "cause"),
)
"""Columns that are read from the newest row of a finding."""
_KEY = "run_id, attempt, fingerprint, raised_ns"
_CHANGES = ", ".join(f"'{change}'" for change in Change)
_ORDER = f"(indexOf([{_CHANGES}], state), at_ns)"
"""The largest value marks the newest row. Time alone does not, because the clock of a watcher may be set back."""
FAR_NS = 2**62
"""Later than every time in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter(Fields):
    """Conditions on findings. An empty text or tuple matches all."""

    run_id: str = ""
    find: str = ""
    """A part of the name of the run, in upper or lower case."""
    kind: str = ""
    severity: str = ""
    host: str = ""
    state: str = ""
    """``firing`` (not resolved) or ``resolved``."""
    since_ns: int = 0
    """Findings that were not resolved before this time."""
    until_ns: int = FAR_NS
    """Findings that were raised before this time."""
    fingerprints: tuple[str, ...] = ()
    raised_at_ns: tuple[int, ...] = ()
    """Values of ``raised_ns``."""

    def _chosen(self) -> str:
        newest = {name: f"newest.{number}" for number, name in enumerate(_STATE, 1)}
        is_resolved = f"{newest['state']} = '{Change.RESOLVED}'"
        return f"""
        SELECT {_KEY}, {", ".join(f"{column} AS {name}" for name, column in newest.items())}
        FROM (
            SELECT {_KEY}, argMax(({", ".join(_STATE)}), {_ORDER}) AS newest
            FROM findings
            WHERE raised_ns <= %(until_ns)s{among("fingerprint", "fingerprints", self.fingerprints)}
                {among("raised_ns", "raised_at_ns", self.raised_at_ns)}
                AND (%(run_id)s = '' OR run_id = %(run_id)s) AND (%(kind)s = '' OR kind = %(kind)s)
                AND (%(find)s = '' OR positionCaseInsensitiveUTF8(run_id, %(find)s) > 0)
            GROUP BY {_KEY}
        )
        WHERE {newest["state"]} != '{Change.DUPLICATE}' AND (NOT ({is_resolved}) OR {newest["at_ns"]} >= %(since_ns)s)
            AND (%(severity)s = '' OR {newest["severity"]} = %(severity)s)
            AND (%(host)s = '' OR has(splitByChar(',', {newest["hosts"]}), %(host)s))
            AND (%(state)s = '' OR ({is_resolved}) = (%(state)s = 'resolved'))
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(FindingFilter):
    """The findings of the log, each with its newest state. The newest first.

    Columns: run_id, attempt, fingerprint, raised_ns, and those of ``telemetry.tables.FINDINGS`` after them.
    """

    offset: int = 0
    limit: int = 50

    def sql(self) -> str:
        return f"{self._chosen()} ORDER BY raised_ns DESC, fingerprint, run_id LIMIT %(offset)s, %(limit)s"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingCount(FindingFilter):
    """The number of findings. Columns: findings, newest_ns (the newest change). No row if there are none."""

    def sql(self) -> str:
        counted = f"SELECT count() AS findings, max(at_ns) AS newest_ns FROM ({self._chosen()})"
        return f"SELECT findings, newest_ns FROM ({counted}) WHERE findings > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnresolvedFindings(Fields):
    """The unresolved findings of some runs, and when they were raised.

    Columns: fingerprint, raised_ns: the earliest of each fingerprint.
    """

    run_ids: tuple[str, ...]
    limit: int = 10_000

    def sql(self) -> str:
        return f"""
        SELECT fingerprint, min(raised_at_ns) AS raised_ns
        FROM (
            SELECT fingerprint, raised_ns AS raised_at_ns FROM findings
            WHERE 1{among("run_id", "run_ids", self.run_ids)}
            GROUP BY fingerprint, raised_at_ns
            HAVING countIf(state IN ('{Change.RESOLVED}', '{Change.DUPLICATE}')) = 0
        )
        GROUP BY fingerprint ORDER BY raised_ns DESC, fingerprint LIMIT %(limit)s
        """


_ACTION = "run_id, attempt, fingerprint, raised_ns, at_ns, action_id, action, who, text, until_ns"
_ACKNOWLEDGING = f"('{Action.ACKNOWLEDGE}', '{Action.REOPEN}')"
_SILENCING = f"('{Action.SILENCE}', '{Action.END_SILENCE}')"
_AT, _UNTIL = (_ACTION.split(", ").index(name) + 1 for name in ("at_ns", "until_ns"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingActions(Fields):
    """The newest actions of people, at most 100 of each finding.

    Columns: run_id, attempt, fingerprint, raised_ns, at_ns, action_id, action, who, text, until_ns; the newest first.
    """

    fingerprints: tuple[str, ...] = ()
    """If empty, all are returned."""
    limit: int = 10_000

    def sql(self) -> str:
        return f"""
        SELECT * FROM (
            SELECT DISTINCT {_ACTION} FROM finding_actions
            WHERE 1{among("fingerprint", "fingerprints", self.fingerprints)}
        )
        ORDER BY at_ns DESC, action_id DESC LIMIT 100 BY fingerprint, raised_ns LIMIT %(limit)s
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingDecisions(Fields):
    """The valid actions of people: for each finding the newest acknowledgement or its withdrawal, and for each
    fingerprint the newest silence or its end. Older actions are never valid again, so filters apply to the newest only.

    Returned are actions since ``since_ns``, and silences that last longer than ``lasting_ns``.

    Columns: run_id, attempt, fingerprint, raised_ns, at_ns, action_id, action, who, text, until_ns; the newest first.
    """

    since_ns: int = 0
    lasting_ns: int = FAR_NS
    fingerprints: tuple[str, ...] = ()
    """If empty, all are returned."""
    limit: int = 10_000

    def sql(self) -> str:
        columns = ", ".join(f"newest.{number} AS {name}" for number, name in enumerate(_ACTION.split(", "), 1))
        return f"""
        SELECT {columns}
        FROM (
            SELECT argMax(({_ACTION}), (at_ns, action_id)) AS newest
            FROM finding_actions
            WHERE (action IN {_ACKNOWLEDGING} OR action IN {_SILENCING})
                {among("fingerprint", "fingerprints", self.fingerprints)}
            GROUP BY fingerprint, if(action IN {_ACKNOWLEDGING}, raised_ns, -1)
        )
        WHERE newest.{_AT} >= %(since_ns)s OR newest.{_UNTIL} > %(lasting_ns)s
        ORDER BY newest.{_AT} DESC, newest.{_AT + 1} DESC LIMIT %(limit)s
        """
