"""The agent measures the offset between the clock of its host and the clock of its collector."""

import httpx
import pytest

from telemetry.agent.sampling import ClockPing, ping
from telemetry.errors import UnreachableError, UsageError
from telemetry.host_metrics import Metric
from telemetry.stores.embedded import EmbeddedStore
from telemetry.wire.client import CollectorClient, CollectorTime
from tests.each_case import each_case
from tests.telemetry.clocks.made_clocks import ZERO_NS
from tests.telemetry.served import collecting

MILLI = 1_000_000


class Exchange:
    """A collector whose clock is ``ahead_ns`` ahead, and the delays on the way there and back."""

    def __init__(self, *ways_ns: tuple[int, int], ahead_ns: int = 0, inside_ns: int = 0) -> None:
        self._ways = list(ways_ns)
        self._ahead_ns = ahead_ns
        self._inside_ns = inside_ns
        self.now_ns = 0

    def wall(self) -> int:
        return ZERO_NS + self.now_ns

    def monotonic(self) -> int:
        return self.now_ns

    def ask(self) -> CollectorTime:
        there_ns, back_ns = self._ways.pop(0)
        received_ns = self.now_ns + there_ns
        answered_ns = received_ns + self._inside_ns
        self.now_ns = answered_ns + back_ns
        zero_ns = ZERO_NS + self._ahead_ns
        return CollectorTime(collector="one", received_ns=zero_ns + received_ns, answered_ns=zero_ns + answered_ns)


@each_case(("there_ms", "back_ms"), [(1, 1), (9, 1), (0, 7)])
def test_error_of_the_measured_clock_offset_is_at_most_half_of_the_round_trip(there_ms: int, back_ms: int) -> None:
    exchange = Exchange((there_ms * MILLI, back_ms * MILLI), ahead_ns=-3_000_000_000, inside_ns=20 * MILLI)
    found = ping(exchange.ask, wall=exchange.wall, monotonic=exchange.monotonic)
    assert found.round_trip_ns == (there_ms + back_ms) * MILLI
    assert abs(found.offset_ns + 3_000_000_000) <= found.round_trip_ns / 2


def test_ping_reads_the_wall_clock_only_once() -> None:
    exchange = Exchange((MILLI, MILLI), ahead_ns=5)
    readings = iter([ZERO_NS])  # a second reading would fail: the clock may be set during the ping
    found = ping(exchange.ask, wall=lambda: next(readings), monotonic=exchange.monotonic)
    assert found.offset_ns == 5


def test_ping_raises_when_the_collector_claims_more_time_than_the_request_took() -> None:
    exchange = Exchange((MILLI, MILLI), inside_ns=5 * MILLI)
    with pytest.raises(ValueError, match="the request took only"):
        ping(exchange.ask, wall=exchange.wall, monotonic=lambda: 0)


def test_clock_sampler_reports_the_ping_with_the_shortest_round_trip() -> None:
    exchange = Exchange((90 * MILLI, MILLI), (MILLI, MILLI), (MILLI, 50 * MILLI))
    sampler = ClockPing(exchange.ask, lambda: None, tries=3, wall=exchange.wall, monotonic=exchange.monotonic)
    values = {reading.metric: reading for reading in sampler.sample(0).readings}
    assert values[Metric.CLOCK_ROUND_TRIP_NS].value == 2 * MILLI
    assert values[Metric.CLOCK_OFFSET_NS].value == 0
    assert values[Metric.CLOCK_OFFSET_NS].device == "one"


@each_case("fault", [UnreachableError("away", hint=""), UsageError("no such route", hint=""), ValueError()])
def test_clock_sample_is_empty_when_the_time_request_fails(fault: Exception) -> None:
    def ask() -> CollectorTime:
        raise fault

    assert ClockPing(ask, lambda: None).sample(0).readings == ()


@each_case(
    "answer", [[], {}, {"collector": 1, "received_ns": 5}, {"collector": "", "received_ns": 5, "answered_ns": 4}]
)
def test_invalid_answer_is_rejected_as_collector_time(answer: object) -> None:
    with pytest.raises(ValueError, match=r"no time|received"):
        CollectorTime.of(answer)


def test_collector_returns_its_time_for_every_valid_token_but_not_without_a_token(embedded: EmbeddedStore) -> None:
    tokens = {"token": "full-token", "write_token": "write-token", "read_token": "read-token"}
    with collecting(embedded, **tokens) as client:
        with CollectorClient(client.url, "write-token") as agent:
            found = ping(agent.time)
        answers = [
            httpx.get(f"{client.url}/v1/clock", headers=headers, verify=False).status_code
            for headers in ({}, {"Authorization": "Bearer read-token"}, {"Authorization": "Bearer full-token"})
        ]
    assert answers == [401, 200, 200]
    assert abs(found.offset_ns) <= found.round_trip_ns / 2 + MILLI  # both clocks are the same; the system may slew it
