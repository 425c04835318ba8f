"""The rows of the findings log: one for each change of an alert that fires, ends, becomes more severe, or turns out to
have begun at another step.

    advance --changes--> alert store, in the transaction of the check --LogSender--> collector: table `findings`

A row leaves the alert store after the collector has stored it. A row that is sent twice has the same key, and counts
once. Rows wait for a collector that does not answer, or that is older than this watcher.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import pyarrow as pa

from diagnose.alerts.alert import URGENCY, Alert, Phase
from diagnose.alerts.alert_file import SpoiledRecordsError
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.publish import Collector
from diagnose.ranges import fold_ranks
from telemetry.errors import RankscopeError, RefusedRowsError, UsageError
from telemetry.finding_log import MAX_PLACES, MAX_TEXT, Change
from telemetry.printable import cut
from telemetry.records import MAX_AHEAD_NS
from telemetry.run_names import Attempt
from telemetry.tables import FINDINGS

MOST_ROWS = 500
"""Rows that are sent in one request."""
MOST_WAITING = 20_000
"""Rows that wait for a collector. If there are more, the oldest ones are dropped."""

LogRow = dict[str, Any]
"""``run_id``, ``attempt``, and the columns of ``FINDINGS``."""


def log_rows(before: Mapping[str, Alert], after: Mapping[str, Alert], now_ns: int) -> tuple[LogRow, ...]:
    """The changes between two checks. A pending alert is not in the log."""
    rows = []
    for name, alert in after.items():
        known = before.get(name)
        if known is not None and _is_duplicate(known, alert, now_ns):
            rows.append(_row(known, Change.DUPLICATE, now_ns))
        if alert.raised_ns and (change := _change(known, alert)) is not None:
            rows.append(_row(alert, change, now_ns))
    return tuple(rows)


def _is_duplicate(before: Alert, alert: Alert, now_ns: int) -> bool:
    """Whether the finding now has an earlier time, so that its logged rows with the later time are duplicates.

    If the later time is too far ahead, the log has no such rows: the collector refused them.
    """
    fires = before.phase is Phase.FIRING and alert.phase is Phase.FIRING
    return fires and 0 < alert.raised_ns < before.raised_ns <= now_ns + MAX_AHEAD_NS


def _change(before: Alert | None, alert: Alert) -> Change | None:
    is_known = before is not None and before.raised_ns == alert.raised_ns
    if alert.phase is Phase.FIRING and not is_known:
        return Change.RAISED
    if not is_known or before is None or before.phase is not Phase.FIRING:
        return None
    if alert.phase is Phase.RESOLVED:
        return Change.RESOLVED
    if alert.onset == before.onset and URGENCY[alert.worst] <= URGENCY[before.worst]:
        return None
    return Change.WORSE if str(alert.worst) != alert.labels["severity"] else Change.RAISED


def _row(alert: Alert, change: Change, now_ns: int) -> LogRow:
    account, onset = alert.account, alert.onset
    run_id, attempt = alert.run
    return {
        "run_id": run_id,
        "attempt": attempt,
        "fingerprint": alert.fingerprint,
        "raised_ns": alert.raised_ns,
        "at_ns": now_ns,
        "state": str(change),
        "kind": alert.kind,
        "severity": str(alert.worst),
        "onset_step": onset.step if onset else -1,
        "onset_ns": onset.at_ns if onset and onset.at_ns <= now_ns + MAX_AHEAD_NS else 0,  # a host's clock is wrong
        "onset_exact": int(onset is not None and onset.is_exact),
        "hosts": cut(",".join(alert.hosts_seen), MAX_PLACES),
        "ranks": cut(fold_ranks(alert.ranks), MAX_PLACES),
        "device": cut(alert.labels.get("device", ""), MAX_PLACES),
        "stage": account.details.get("stage", ""),
        "summary": cut(account.summary, MAX_TEXT),
        "next_step": cut(account.next_step, MAX_TEXT),
        "seconds_lost": account.seconds_lost,
        "basis": str(account.basis),
        "cause": alert.suppressed_by,
    }


def read_log_row(body: bytes) -> LogRow:
    """A row from the alert store.

    Raises:
        Exception: it cannot be sent; see ``diagnose.alerts.alert.NO_RECORD``.
    """
    row: LogRow = json.loads(body)
    values = pa.Table.from_pylist([row], schema=FINDINGS)
    if any(column.null_count for column in values.columns):
        raise ValueError("a value is missing")
    return {**row, "run_id": str(row["run_id"]), "attempt": int(row["attempt"])}


class Queue(Protocol):
    """Rows that were not sent yet; see ``alert_store.AlertStore``."""

    def log_waiting(self, most: int) -> dict[int, LogRow]:
        """Number -> row, the oldest first. Raises ``SpoiledRecordsError`` once if some are unreadable and were
        removed."""
        ...

    def log_taken(self, numbers: Sequence[int]) -> None: ...

    def log_drop_oldest(self, most: int) -> int:
        """Keep ``most`` rows. Returns the number of rows that are removed."""
        ...


class LogSender:
    """Sends waiting rows to a collector. For one thread."""

    def __init__(self, queue: Queue, error_reports: ErrorReports) -> None:
        self._queue = queue
        self._error_reports = error_reports
        self._num_dropped = 0
        """Rows that were dropped since the collector last accepted rows."""

    def send(self, reader: object) -> None:
        """Send waiting rows if ``reader`` is a collector. Without a collector they are dropped: nobody can read them.

        Raises nothing.
        """
        try:
            while rows := self._waiting():
                if isinstance(reader, Collector):
                    self._post(reader, rows)
                else:
                    self._queue.log_taken(list(rows))
        except Exception as error:  # the watcher must continue without the log; the rows wait
            message = error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}"
            self._error_reports.begin(
                "log", f"the findings log does not receive changes, so they are kept and retried: {message}"
            )
            self._drop_oldest()
            return
        lost = f"; rows that were dropped: {self._num_dropped}" if self._num_dropped else ""
        self._error_reports.end("log", f"the findings log receives changes again{lost}")
        self._num_dropped = 0

    def _waiting(self) -> dict[int, LogRow]:
        while True:
            try:
                return self._queue.log_waiting(MOST_ROWS)
            except SpoiledRecordsError as error:
                self._error_reports.report(f"findings log: {error}")

    def _drop_oldest(self) -> None:
        with suppress(Exception):  # the disk is full: the next call drops them
            dropped = self._queue.log_drop_oldest(MOST_WAITING)
            if dropped and not self._num_dropped:
                self._error_reports.report(
                    f"more than {MOST_WAITING} rows of the findings log wait: the oldest ones are dropped"
                )
            self._num_dropped += dropped

    def _post(self, collector: Collector, rows: Mapping[int, LogRow]) -> None:
        by_attempt: dict[Attempt, dict[int, LogRow]] = {}
        for number, row in rows.items():
            by_attempt.setdefault((row["run_id"], row["attempt"]), {})[number] = row
        for attempt, of_attempt in by_attempt.items():
            try:
                collector.post("findings", _table(attempt, list(of_attempt.values())))
            except RefusedRowsError:
                _check_is_known(collector)
                self._post_one_by_one(collector, attempt, of_attempt)
            self._queue.log_taken(list(of_attempt))

    def _post_one_by_one(self, collector: Collector, attempt: Attempt, rows: Mapping[int, LogRow]) -> None:
        """Store the rows that the collector accepts. The others are dropped: they would block all later rows."""
        refusals: list[RefusedRowsError] = []
        for row in rows.values():
            try:
                collector.post("findings", _table(attempt, [row]))
            except RefusedRowsError as error:
                refusals.append(error)
        if refusals:
            self._error_reports.report(
                "the collector rejects rows of the findings log, so they are dropped "
                f"({len(refusals)}): {refusals[0].message}"
            )


def _table(attempt: Attempt, rows: Sequence[LogRow]) -> pa.Table:
    run_id, number = attempt
    metadata = {"run_id": run_id, "attempt": str(number)}
    return pa.Table.from_pylist(list(rows), schema=FINDINGS).replace_schema_metadata(metadata)


def _check_is_known(collector: Collector) -> None:
    """Check that the collector has the table of the findings log with the same columns, by sending it without rows.

    Raises:
        UsageError: it does not have this table. It is of another version.
    """
    try:
        collector.post("findings", _table(("findings-log", 0), []))
    except RefusedRowsError as error:
        raise UsageError(
            f"{error.message}; upgrade the collector to the version of this watcher",
            hint="the rows are sent after the upgrade",
        ) from error
