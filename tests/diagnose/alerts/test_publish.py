"""What a watcher publishes to its collector: active alerts, ended alerts, and the runs that it checked."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from diagnose.alerts.alert import read_alert
from diagnose.alerts.check import Check
from diagnose.alerts.life import State
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.publish import EVERY_NS, Publisher
from diagnose.alerts.sightings import RunFindings
from diagnose.findings import Kind
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.queries import AlertLooks, Alerts
from telemetry.wire.client import CollectorClient
from tests.diagnose.alerts.made_checks import RUN, START_NS, Watched, finding, quick
from tests.telemetry.served import collecting


@pytest.fixture
def collector(embedded: EmbeddedStore) -> Iterator[CollectorClient]:
    with collecting(embedded) as client:
        yield client


class Sender:
    """A publisher and its error reports."""

    def __init__(self, reader: object, state: State | None = None) -> None:
        self.reader = reader
        self.errors: list[str] = []
        self.publisher = Publisher(ErrorReports(self.errors.append), (state or State()).alerts)

    def publishes(self, watched: Watched) -> None:
        check = Check(now_ns=now_ns(watched), runs=(RunFindings(run_id=RUN, attempt=0, step_s=1.0, sightings=()),))
        self.publisher.publish(self.reader, watched.state.alerts, check)


def now_ns(watched: Watched) -> int:
    return START_NS + int(watched.now_s * 1e9)


def phases(collector: CollectorClient) -> list[str]:
    return [str(phase) for phase in collector.read(Alerts())["phase"].to_pylist()]


def test_publisher_sends_an_alert_as_firing_and_later_as_resolved(collector: CollectorClient) -> None:
    watched, sender = Watched(quick(for_s=5)), Sender(collector)
    trouble = finding(Kind.COMPUTE_STRAGGLER, 5)
    for _ in range(2):
        watched.sees(trouble)
        sender.publishes(watched)
    (row,) = collector.read(Alerts()).to_pylist()
    assert (row["run_id"], row["attempt"], row["phase"]) == (RUN, 0, "firing")
    assert read_alert(row["body"]) == watched.state.alerts[row["fingerprint"]]
    watched.quietly(120)
    sender.publishes(watched)
    assert phases(collector) == ["resolved"]
    assert collector.read(AlertLooks())["at_ns"].to_pylist() == [now_ns(watched)]
    assert sender.errors == []


def test_pending_alert_that_did_not_last_is_removed_from_the_collector_after_a_restart(
    collector: CollectorClient,
) -> None:
    watched = Watched(quick(for_s=60))
    watched.sees(finding(Kind.COMPUTE_STRAGGLER, 5))
    Sender(collector).publishes(watched)
    assert phases(collector) == ["pending"]
    after = Sender(collector, watched.state)
    watched.quietly(120)
    assert watched.state.alerts == {}
    after.publishes(watched)
    assert phases(collector) == []


class Refusing:
    """A collector that rejects all rows while ``refuses``."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.refuses = True
        self.asked = 0

    def post(self, table: str, rows: pa.Table) -> object:
        self.asked += 1
        if self.refuses:
            raise UsageError("this token may only read", hint="present the one that writes")
        self.tables.append(rows)
        return None


def test_refusing_collector_is_reported_once_retried_rarely_and_updated_later() -> None:
    watched, refusing = Watched(quick()), Refusing()
    sender = Sender(refusing)
    for _ in range(6):
        watched.sees(finding(Kind.DEAD_RANK, 5))
        sender.publishes(watched)
    said = "the dashboard does not receive alerts: this token may only read (present the one that writes)"
    assert sender.errors == [said]
    assert refusing.asked == 1 + int(25e9 // EVERY_NS)
    refusing.refuses = False
    watched.quietly(120)
    sender.publishes(watched)
    (rows,) = refusing.tables
    assert sorted(rows["phase"].to_pylist()) == ["looked", "resolved"]
    assert sender.errors[1:] == ["the dashboard receives alerts again"]


def test_firing_alert_is_published_again_every_15_seconds() -> None:
    watched, taking = Watched(quick()), Refusing()
    taking.refuses = False
    sender = Sender(taking)
    for _ in range(13):
        watched.sees(finding(Kind.DEAD_RANK, 5))
        sender.publishes(watched)
    assert taking.asked == 1 + int(60e9 // EVERY_NS)
    assert all(table["phase"].to_pylist() == ["firing", "looked"] for table in taking.tables)


def test_publisher_reports_no_error_when_the_store_is_read_only() -> None:
    watched, sender = Watched(quick()), Sender(object())
    watched.sees(finding(Kind.DEAD_RANK, 5))
    sender.publishes(watched)
    assert sender.errors == []
