"""The collector's own metrics, for the Prometheus client. ``docs/guides/metrics.md`` lists them."""

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from telemetry.wire.codec import Ack


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter with at most one label, and the help that ``/metrics`` shows."""

    name: str
    help: str
    label: str = ""


RECEIVED = Counted("rankscope_rows_received_total", "Rows received, including duplicates.", "table")
STORED = Counted("rankscope_rows_stored_total", "Rows inserted into the store.", "table")
DUPLICATE = Counted("rankscope_rows_duplicate_total", "Rows dropped because they were already stored.", "table")
LOST = Counted("rankscope_records_lost_total", "Records that ranks lost, from the marks stored here.")
OTLP_REJECTED = Counted(
    "rankscope_otlp_records_rejected_total",
    "OpenTelemetry records rejected. The other records of the request are stored.",
    "signal",
)
REJECTED = Counted("rankscope_batches_rejected_total", "Batches refused, by HTTP status.", "status")
REFUSED = Counted(
    "rankscope_requests_refused_total", "Requests refused before they reached a route, by HTTP status.", "status"
)
FAILED = Counted("rankscope_batches_failed_total", "Batches whose insert failed. Agents send them again.", "table")
CLAIMS_LOST = Counted("rankscope_claims_lost_total", "Ranks that another collector took over.")
INSERTS = Counted("rankscope_inserts_total", "Completed inserts into the store.", "table")
INSERT_SECONDS = Counted("rankscope_insert_seconds_total", "Time spent in completed inserts.", "table")
QUERIES = Counted("rankscope_queries_total", "Typed queries answered.", "query")
COUNTERS = (
    *(RECEIVED, STORED, DUPLICATE, LOST, OTLP_REJECTED, REJECTED, REFUSED, FAILED, CLAIMS_LOST),
    *(INSERTS, INSERT_SECONDS, QUERIES),
)
QUEUE_BATCHES = "rankscope_queue_batches", "Batches that wait to be stored."
QUEUE_BYTES = "rankscope_queue_bytes", "Bytes that wait to be stored."


class Counters:
    """Counts by name and label, and a collector in the sense of the Prometheus client. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: Counter[tuple[Counted, str]] = Counter({(LOST, ""): 0, (CLAIMS_LOST, ""): 0})
        self._queued = (0, 0)

    def received(self, table: str, rows: int) -> None:
        self._add(RECEIVED, table, rows)

    def stored(self, table: str, ack: Ack) -> None:
        self._add(STORED, table, ack.rows)
        self._add(DUPLICATE, table, ack.duplicates)

    def inserted(self, table: str, seconds: float) -> None:
        self._add(INSERTS, table, 1)
        self._add(INSERT_SECONDS, table, seconds)

    def failed(self, table: str) -> None:
        self._add(FAILED, table, 1)

    def claims_lost(self, ranks: int) -> None:
        self._add(CLAIMS_LOST, "", ranks)

    def records_lost(self, records: int) -> None:
        self._add(LOST, "", records)

    def records_rejected(self, signal: str, records: int) -> None:
        self._add(OTLP_REJECTED, signal, records)

    def rejected(self, status: int) -> None:
        self._add(REJECTED, str(status), 1)

    def refused(self, status: int) -> None:
        self._add(REFUSED, str(status), 1)

    def answered(self, query: str) -> None:
        self._add(QUERIES, query, 1)

    def queued(self, batches: int, size_bytes: int) -> None:
        with self._lock:
            self._queued = batches, size_bytes

    def _add(self, counter: Counted, label: str, amount: float) -> None:
        with self._lock:
            self._values[counter, label] += amount  # type: ignore[assignment]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """All counters and the queue."""
        with self._lock:
            values, queued = dict(self._values), self._queued
        for counter in COUNTERS:
            family = CounterMetricFamily(counter.name, counter.help, labels=(counter.label,) if counter.label else ())
            for (_, label), value in sorted(item for item in values.items() if item[0][0] is counter):
                family.add_metric((label,) if counter.label else (), value)
            yield family
        for (name, help_text), value in zip((QUEUE_BATCHES, QUEUE_BYTES), queued, strict=True):
            yield GaugeMetricFamily(name, help_text, value=value)
