"""What the NIC sampler makes of the kernel's news, told by a script in netlink's place."""

from dataclasses import replace
from pathlib import Path

import pytest

from telemetry.agent.samplers.link_events import LinkMessage
from telemetry.agent.samplers.nic import InterfaceChoice, NicSampler
from telemetry.host_metrics import Happening
from tests.telemetry.agent.samplers.made_kernel import ADDRESS, NAME, Kernel
from tests.telemetry.agent.samplers.made_sysfs import gain_link, lose_link, made_interface
from tests.telemetry.agent.samplers.sample_values import happened, losses, values

EVERY_LOOK, NEVER = 1, 1_000_000


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
    """One interface whose files and news agree."""

    def __init__(self, root: Path) -> None:
        self.folder = made_interface(root, NAME, downs=0, ups=0)
        self.kernel = Kernel()
        self.news = ScriptedNews()
        self.sampler = NicSampler(root, news=self.news, rescan_every=NEVER)

    def lose(self, at_ns: int) -> None:
        self.kernel.lose()
        lose_link(self.folder)
        self.say(at_ns)

    def gain(self, at_ns: int) -> None:
        self.kernel.gain()
        gain_link(self.folder)
        self.say(at_ns)

    def say(self, at_ns: int) -> None:
        self.news.waiting.append(replace(self.kernel.message(at_ns), index=int((self.folder / "ifindex").read_text())))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_events_carry_the_time_of_the_news_not_of_the_look(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(110)
    host.gain(120)
    host.lose(130)
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(110, "link-down"), (120, "link-up"), (130, "link-down")]


def test_what_news_left_out_is_told_by_the_look_that_finds_it(host: Host) -> None:
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


def test_news_that_came_after_the_look_began_does_not_turn_events_round(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(210)
    gain_link(host.folder)
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(210, "link-down"), (210, "link-up")]


def test_news_of_before_the_first_look_is_no_event(host: Host) -> None:
    host.lose(10)
    host.gain(20)
    assert host.sampler.sample(100).events == ()


@pytest.mark.parametrize("other", [{"name": "eth9"}, {"address": "0c:42:a1:00:00:99"}, {"address": ""}])
def test_news_of_another_interface_under_the_same_index_is_not_taken(host: Host, other: dict[str, str]) -> None:
    host.sampler.sample(100)
    host.kernel.lose()
    host.say(110)
    host.news.waiting = [replace(message, **other) for message in host.news.waiting]
    assert host.sampler.sample(200).events == ()


def test_news_of_an_old_kernel_without_counts_leaves_it_to_the_files(host: Host) -> None:
    host.sampler.sample(100)
    host.lose(110)
    host.news.waiting = [replace(one, downs=None, ups=None, changes=None) for one in host.news.waiting]
    events = host.sampler.sample(200).events
    assert [(event.at_ns, event.name) for event in events] == [(200, "link-down")]


def test_an_interface_of_which_the_kernel_speaks_is_taken_up_at_the_next_look(host: Host, tmp_path: Path) -> None:
    host.sampler.sample(100)
    made_interface(tmp_path, "eth1")
    assert host.sampler.devices == (NAME,)
    host.news.waiting.append(replace(host.kernel.message(110), name="eth1", index=99))
    host.sampler.sample(200)
    assert host.sampler.devices == (NAME, "eth1")


def test_an_interface_that_the_kernel_took_away_is_gone_since_then(host: Host) -> None:
    host.sampler.sample(100)
    host.say(110)
    host.news.waiting = [replace(message, is_deleted=True) for message in host.news.waiting]
    (host.folder / "ifindex").write_text("0\n")
    sample = host.sampler.sample(200)
    assert [(event.at_ns, event.name) for event in sample.events] == [(110, "device-gone")]


def test_taking_it_down_and_putting_it_up_between_two_looks_is_seen_by_news(host: Host) -> None:
    host.sampler.sample(100)
    host.kernel.take_down()
    lose_link(host.folder)
    host.say(110)
    host.kernel.put_up()
    host.gain(120)
    sample = host.sampler.sample(200)
    assert happened(sample) == [("link-taken-down", NAME), ("link-up", NAME)]
    assert values(sample)["nic-up", NAME] == 1


def test_news_of_interfaces_that_nobody_chose_asks_for_no_search(tmp_path: Path) -> None:
    made_interface(tmp_path, "ib0")
    news = ScriptedNews()
    sampler = NicSampler(tmp_path, news=news, choice=InterfaceChoice(wanted=("ib*",)), rescan_every=NEVER)
    made_interface(tmp_path, "ib1")
    news.waiting.append(replace(Kernel().message(1), name="veth123"))
    sampler.sample(2)
    assert sampler.devices == ("ib0",)


def test_closing_the_sampler_closes_its_news(host: Host) -> None:
    host.sampler.close()
    assert host.news.is_closed


def test_a_thousand_changes_in_one_look_are_all_told(host: Host) -> None:
    host.sampler.sample(1)
    for at_ns in range(10, 2010, 2):
        host.kernel.lose()
        host.say(at_ns)
        host.kernel.gain()
        host.say(at_ns + 1)
    lose_link(host.folder, times=1000)
    gain_link(host.folder)
    events = host.sampler.sample(3000).events
    assert losses(events) == 1000
    assert len(events) == 2000


def test_the_address_of_made_files_is_that_of_made_news(host: Host) -> None:
    assert (host.folder / "address").read_text().strip() == ADDRESS
