"""The collector's own metrics, in Prometheus format."""

import threading
from collections import Counter

from telemetry.wire.codec import Ack

_HELP = {
    "rankscope_rows_received_total": ("counter", "Rows received, including duplicates."),
    "rankscope_rows_stored_total": ("counter", "Rows inserted into the store."),
    "rankscope_rows_duplicate_total": ("counter", "Rows dropped because they were already stored."),
    "rankscope_records_lost_total": ("counter", "Records that ranks lost, from the marks stored here."),
    "rankscope_otlp_records_rejected_total": ("counter", "OpenTelemetry records rejected; other records are stored."),
    "rankscope_batches_rejected_total": ("counter", "Batches refused, by HTTP status."),
    "rankscope_requests_refused_total": ("counter", "Requests rejected before they reached a route, by status."),
    "rankscope_batches_failed_total": ("counter", "Batches whose insert failed; agents retry them."),
    "rankscope_claims_lost_total": ("counter", "Ranks that another collector took over."),
    "rankscope_inserts_total": ("counter", "Inserts done."),
    "rankscope_insert_seconds_total": ("counter", "Time spent in inserts."),
    "rankscope_queries_total": ("counter", "Typed queries answered."),
    "rankscope_queue_batches": ("gauge", "Batches waiting to be stored."),
    "rankscope_queue_bytes": ("gauge", "Bytes waiting to be stored."),
}


class Counters:
    """Counts by name and label. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[str, str]] = Counter({("rankscope_records_lost_total", ""): 0})

    def received(self, table: str, rows: int) -> None:
        self._add("rankscope_rows_received_total", f'table="{table}"', rows)

    def stored(self, table: str, ack: Ack) -> None:
        self._add("rankscope_rows_stored_total", f'table="{table}"', ack.rows)
        self._add("rankscope_rows_duplicate_total", f'table="{table}"', ack.duplicates)

    def inserted(self, table: str, seconds: float) -> None:
        self._add("rankscope_inserts_total", f'table="{table}"', 1)
        self._add("rankscope_insert_seconds_total", f'table="{table}"', seconds)

    def failed(self, table: str) -> None:
        self._add("rankscope_batches_failed_total", f'table="{table}"', 1)

    def claims_lost(self, ranks: int) -> None:
        self._add("rankscope_claims_lost_total", "", ranks)

    def records_lost(self, records: int) -> None:
        self._add("rankscope_records_lost_total", "", records)

    def records_rejected(self, signal: str, records: int) -> None:
        self._add("rankscope_otlp_records_rejected_total", f'signal="{signal}"', records)

    def rejected(self, status: int) -> None:
        self._add("rankscope_batches_rejected_total", f'status="{status}"', 1)

    def refused(self, status: int) -> None:
        self._add("rankscope_requests_refused_total", f'status="{status}"', 1)

    def answered(self, query: str) -> None:
        self._add("rankscope_queries_total", f'query="{query}"', 1)

    def queued(self, batches: int, size_bytes: int) -> None:
        with self._lock:
            self._values["rankscope_queue_batches", ""] = batches
            self._values["rankscope_queue_bytes", ""] = size_bytes

    def _add(self, name: str, label: str, amount: float) -> None:
        with self._lock:
            self._values[name, label] += amount  # type: ignore[assignment]

    def as_text(self) -> str:
        """The Prometheus text format."""
        with self._lock:
            values = dict(self._values)
        lines = []
        for name, (kind, help_text) in _HELP.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            for (_, label), value in sorted(item for item in values.items() if item[0][0] == name):
                lines.append(f"{name}{{{label}}} {value}" if label else f"{name} {value}")
        return "\n".join(lines) + "\n"
