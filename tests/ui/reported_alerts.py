"""Writes alerts and rows of the findings log into a store, as a watcher reports them."""

from collections.abc import Iterable
from dataclasses import replace

from diagnose.alerts.alert import Account, Alert, Phase, alert_text, fingerprint_of
from diagnose.alerts.log import log_rows
from diagnose.alerts.onset import Onset
from diagnose.findings import Severity
from telemetry.stores.interface import Store
from telemetry.tables import LOOKED
from tests.telemetry.made_rows import insert, made

S = 1_000_000_000


def made_alert(
    run_id: str,
    *,
    began_ns: int,
    kind: str = "compute-straggler",
    phase: Phase = Phase.FIRING,
    rank: int = 5,
    host: str = "",
    severity: Severity = Severity.WARNING,
    summary: str = "",
    onset: Onset | None = None,
) -> Alert:
    labels = {"alertname": kind, "run_id": run_id, "attempt": "0", "host": host or f"gpu-{rank // 2 + 1:02d}"}
    labels["rank"] = str(rank)
    account = Account(
        severity=severity,
        summary=summary or f"rank {rank} computes 1.4 times as long as its peers",
        next_step="look at the clocks of its GPU",
        seconds_lost=12.5,
        first_step=10,
        last_step=39,
    )
    return Alert(
        fingerprint=fingerprint_of(labels),
        labels=labels,
        phase=phase,
        account=account,
        ranks=(rank,),
        began_ns=began_ns,
        changed_ns=began_ns + 60 * S,
        raised_ns=0 if phase is Phase.PENDING else began_ns,
        worst=severity,
        hosts_seen=(labels["host"],),
        onset=onset,
    )


def tell(store: Store, alert: Alert, *, at_ns: int, body: str | None = None) -> None:
    run_id, attempt = alert.run
    row = {"fingerprint": alert.fingerprint, "began_ns": alert.began_ns, "at_ns": at_ns, "phase": str(alert.phase)}
    rows = made("alerts", [row | {"body": alert_text(alert) if body is None else body}])
    insert(store, "alerts", rows, run_id=run_id, attempt=attempt)


def tell_log(store: Store, alerts: Iterable[Alert], *, at_ns: int) -> None:
    """Store the rows of raised alerts. A resolved alert also gets the row of its end."""
    rows = []
    for alert in alerts:
        name, fires = alert.fingerprint, replace(alert, phase=Phase.FIRING)
        rows += log_rows({}, {name: fires}, alert.raised_ns)
        rows += log_rows({name: fires}, {name: alert}, at_ns)
    for attempt in {(row["run_id"], row["attempt"]) for row in rows}:
        run_id, number = attempt
        of_attempt = [row for row in rows if (row["run_id"], row["attempt"]) == attempt]
        insert(store, "findings", made("findings", map(columns, of_attempt)), run_id=run_id, attempt=number)


def columns(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("run_id", "attempt")}


def tell_look(store: Store, run_id: str, *, at_ns: int) -> None:
    insert(store, "alerts", made("alerts", [{"at_ns": at_ns, "phase": LOOKED}]), run_id=run_id)
