"""The NIC sampler with netlink messages from a script instead of the kernel."""

from dataclasses import replace
from pathlib import Path

import pytest

from telemetry.agent.samplers.link_events import LinkMessage
from telemetry.agent.samplers.nic import InterfaceChoice, NicSampler
from telemetry.host_metrics import Happening
from tests.telemetry.agent.samplers.made_kernel import ADDRESS, NAME, Kernel
from tests.telemetry.agent.samplers.made_sysfs import gain_link, lose_link, made_interface
from tests.telemetry.agent.samplers.sample_values import happened, losses, values

NEVER = 1_000_000


class ScriptedNews:
    """Netlink's twin in memory."""

    def __init__(self) -> None:
        self.waiting: list[LinkMessage] = []
        self.is_closed = False

    def drain(self) -> list[LinkMessage]:
        drained, self.waiting = self.waiting, []
        return drained

    def close(self) -> None:
        self.is_closed = True


class Host:
    """One interface. Its files and its netlink messages agree."""

    def __init__(self, root: Path) -> None:
        self.folder = made_interface(root, NAME, downs=0, ups=0)
        self.kernel = Kernel()
        self.news = ScriptedNews()
        self.sampler = NicSampler(root, news=self.news, rescan_every=NEVER)

    def lose(self, at_ns: int) -> None:
        self.kernel.lose()
        lose_link(self.folder)
        self.send_message(at_ns)

    def gain(self, at_ns: int) -> None:
        self.kernel.gain()
        gain_link(self.folder)
        self.send_message(at_ns)

    def send_message(self, at_ns: int) -> None:
        self.news.waiting.append(replace(self.kernel.message(at_ns), index=int((self.folder / "ifindex").read_text())))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_event_time_is_the_time_of_the_netlink_message_not_of_the_sample(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(110)
    host.gain(120)
    host.lose(130)
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(110, "link-down"), (120, "link-up"), (130, "link-down")]


def test_sample_reports_link_losses_whose_netlink_messages_were_lost(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(110)
    host.gain(120)
    host.lose(130)
    host.gain(140)
    del host.news.waiting[1:]
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name, event.text) for event in events if event.name != Happening.LINK_UP] == [
        (110, "link-down", "no carrier"),
        (200, "link-flaps", "1"),
    ]


def test_event_order_is_kept_when_a_netlink_message_is_newer_than_the_sample(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(210)
    gain_link(host.folder)
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(210, "link-down"), (210, "link-up")]


def test_netlink_messages_before_the_first_sample_produce_no_event(host: Host) -> None:
    host.lose(10)
    host.gain(20)
    assert host.sampler.sample(100).events == ()


@pytest.mark.parametrize("other", [{"name": "eth9"}, {"address": "0c:42:a1:00:00:99"}, {"address": ""}])
def test_netlink_message_of_another_interface_with_the_same_index_is_ignored(host: Host, other: dict[str, str]) -> None:
    host.sampler.sample(100)
    host.kernel.lose()
    host.send_message(110)
    host.news.waiting = [replace(message, **other) for message in host.news.waiting]
    assert host.sampler.sample(200).events == ()


def test_link_loss_is_read_from_files_when_netlink_messages_have_no_counts(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(110)
    host.news.waiting = [replace(one, downs=None, ups=None, changes=None) for one in host.news.waiting]
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(200, "link-down")]


def test_interface_named_in_a_netlink_message_is_added_at_the_next_sample(host: Host, tmp_path: Path) -> None:
    host.sampler.sample(100)
    made_interface(tmp_path, "eth1")
    assert host.sampler.devices == (NAME,)
    host.news.waiting.append(replace(host.kernel.message(110), name="eth1", index=99))
    host.sampler.sample(200)
    assert host.sampler.devices == (NAME, "eth1")


def test_deleted_interface_is_reported_gone_with_the_time_of_the_netlink_message(host: Host) -> None:
    host.sampler.sample(100)
    host.send_message(110)
    host.news.waiting = [replace(message, is_deleted=True) for message in host.news.waiting]
    (host.folder / "ifindex").write_text("0\n")
    sample = host.sampler.sample(200)
    assert [(event.at_ns, event.name) for event in sample.events] == [(110, "device-gone")]


def test_interface_taken_down_and_up_between_two_samples_is_reported_from_messages(host: Host) -> None:
    host.sampler.sample(100)
    host.kernel.take_down()
    lose_link(host.folder)
    host.send_message(110)
    host.kernel.put_up()
    host.gain(120)
    sample = host.sampler.sample(200)
    assert happened(sample) == [("link-taken-down", NAME), ("link-up", NAME)]
    assert values(sample)["nic-up", NAME] == 1


def test_netlink_message_of_an_unselected_interface_causes_no_rescan(tmp_path: Path) -> None:
    made_interface(tmp_path, "ib0")
    news = ScriptedNews()
    sampler = NicSampler(tmp_path, news=news, choice=InterfaceChoice(wanted=("ib*",)), rescan_every=NEVER)
    made_interface(tmp_path, "ib1")
    news.waiting.append(replace(Kernel().message(1), name="veth123"))
    sampler.sample(2)
    assert sampler.devices == ("ib0",)


def test_closing_the_sampler_closes_its_netlink_listener(host: Host) -> None:
    host.sampler.close()
    assert host.news.is_closed


def test_thousand_link_losses_between_two_samples_are_all_reported(host: Host) -> None:
    host.sampler.sample(1)
    for at_ns in range(10, 2010, 2):
        host.kernel.lose()
        host.send_message(at_ns)
        host.kernel.gain()
        host.send_message(at_ns + 1)
    lose_link(host.folder, times=1000)
    gain_link(host.folder)
    events = host.sampler.sample(3000).events
    assert losses(events) == 1000
    assert len(events) == 2000


def test_address_in_made_files_equals_the_address_in_made_messages(host: Host) -> None:
    assert (host.folder / "address").read_text().strip() == ADDRESS
