"""Flaps of real links: a veth pair into a network namespace, and a sampler inside it."""

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from telemetry.agent.samplers.interface import Event
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from tests.deadline import until
from tests.telemetry.agent.samplers.namespaces import INTERFACE, Namespace, SamplingProcess, namespace_of_a_host
from tests.telemetry.agent.samplers.sample_values import losses

pytestmark = pytest.mark.netns


@pytest.fixture
def host() -> Iterator[Namespace]:
    with namespace_of_a_host() as host:
        yield host


def events_until_quiet(sampling: SamplingProcess) -> list[Event]:
    """Take samples until two in a row bring no new event. Return all events."""
    events: list[Event] = []
    quiet = 0

    def is_quiet() -> bool:
        nonlocal quiet
        _, more = sampling.sample()
        events.extend(more)
        quiet = 0 if more else quiet + 1
        return quiet >= 2

    until(is_quiet, what="no more events")
    return events


@pytest.mark.parametrize("arguments", [(), ("--deaf",)], ids=["netlink", "samples alone"])
def test_reported_losses_match_the_kernel_count_after_hundreds_of_back_to_back_flaps(
    host: Namespace, arguments: tuple[str, ...]
) -> None:
    with SamplingProcess(host, *arguments) as sampling:
        sampling.sample()
        before = host.counted()
        events: list[Event] = []
        for times in (1, 200, 3, 100, 40):
            host.flap(times)
            events += sampling.sample()[1]
        events += events_until_quiet(sampling)
        assert host.counted() - before == 344
        assert losses(events) == 344


def test_reported_losses_match_the_kernel_count_when_flaps_and_samples_mix_at_random(host: Namespace) -> None:
    chance = random.Random(7)
    with SamplingProcess(host) as sampling:
        sampling.sample()
        before = host.counted()
        events: list[Event] = []
        for _ in range(40):
            chance.choice((host.cut, host.mend, lambda: host.flap(1), lambda: host.flap(5)))()
            apart_s = chance.choice((0.0, 0.0, 0.0, 0.02, 0.3 * chance.random()))
            resume = time.monotonic() + apart_s
            until(lambda at=resume: time.monotonic() >= at, every=0.005)
            if chance.random() < 0.5:
                events += sampling.sample()[1]
        host.mend()
        events += events_until_quiet(sampling)
        assert losses(events) == host.counted() - before
        assert [event.name for event in events if event.name != Happening.LINK_FLAPS][-1] == Happening.LINK_UP


def test_reported_losses_match_the_kernel_count_when_the_link_flaps_during_samples(host: Namespace) -> None:
    with SamplingProcess(host) as sampling:
        sampling.sample()
        before = host.counted()
        events: list[Event] = []
        with host.flapping(300) as flapping:
            until(lambda: events.extend(sampling.sample()[1]) or flapping.poll() is not None, every=0.0)
        events += events_until_quiet(sampling)
        assert losses(events) == host.counted() - before == 300


def test_no_flap_is_lost_when_the_kernel_drops_netlink_messages(host: Namespace) -> None:
    with SamplingProcess(host, "--buffer", "4096") as sampling:
        sampling.sample()
        os.kill(sampling.pid, signal.SIGSTOP)
        try:
            host.flap(60)
        finally:
            os.kill(sampling.pid, signal.SIGCONT)
        until(lambda: sampling.news() == [], what="all that was not dropped")
        events = events_until_quiet(sampling)
        assert losses(events) == 60
        host.cut()
        until(lambda: any(one["has_carrier"] is False for one in sampling.news()), what="news after the storm")


def test_netlink_message_carries_the_time_of_the_link_change(host: Namespace) -> None:
    with SamplingProcess(host) as sampling:
        seen: list[tuple[int, int]] = []

        def carrier_is(up: bool) -> bool:
            news = [one for one in sampling.news() if one["name"] == INTERFACE and one["has_carrier"] is up]
            seen.extend((began_ns, one["at_ns"]) for one in news[:1])
            return bool(news)

        for _ in range(3):
            for change, up in ((host.cut, False), (host.mend, True)):
                began_ns = time.time_ns()
                change()
                until(lambda up=up: carrier_is(up), every=0.01, what="news of the carrier")
        assert all(began_ns <= at_ns for began_ns, at_ns in seen)
        assert all(at_ns <= began_ns for (_, at_ns), (began_ns, _) in pairwise(seen))


def test_interface_taken_down_by_its_owner_is_not_reported_as_link_down(host: Namespace) -> None:
    with SamplingProcess(host) as sampling:
        sampling.sample()
        host.batch(f"link set {INTERFACE} down\n")
        values, events = sampling.sample()
        assert values[f"nic-up {INTERFACE}"] == 0
        assert f"nic-speed-mbps {INTERFACE}" not in values
        host.batch(f"link set {INTERFACE} up\n")
        events += events_until_quiet(sampling)
        assert [event.name for event in events] == [Happening.LINK_TAKEN_DOWN, Happening.LINK_UP]


def test_interface_taken_down_before_sampling_is_reported_as_already_down(host: Namespace) -> None:
    host.batch(f"link set {INTERFACE} down\n")
    with SamplingProcess(host, "--deaf") as sampling:
        (event,) = sampling.sample()[1]
        assert event.name == Happening.LINK_TAKEN_DOWN
        assert event.text.startswith(LINK_ALREADY_DOWN)


def test_new_interface_is_sampled_and_reported_gone_after_its_deletion(host: Namespace) -> None:
    with SamplingProcess(host) as sampling:
        sampling.sample()
        host.batch("link add mgmt0 type veth peer name mgmt1\nlink set mgmt0 up\nlink set mgmt1 up\n")
        until(lambda: "nic-up mgmt0" in sampling.sample()[0], every=0.01, what="the new interface")
        events_until_quiet(sampling)
        host.batch("link del mgmt0\n")
        events = events_until_quiet(sampling)
        gone = {event.device for event in events if event.name == Happening.DEVICE_GONE}
        assert gone == {"mgmt0", "mgmt1"}
        assert all(event.at_ns <= time.time_ns() for event in events)
        values, _ = sampling.sample()
        assert {name.split()[1] for name in values} == {INTERFACE}
