"""Readings and events of the NIC sampler from a tree of files, without netlink."""

import shutil
from pathlib import Path

import pytest

from telemetry.agent.samplers.interface import GoneError
from telemetry.agent.samplers.kept_files import Descriptors
from telemetry.agent.samplers.nic import InterfaceChoice, NicSampler
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening, Metric
from tests.telemetry.agent.samplers.made_sysfs import gain_link, lose_link, made_h100_node, made_interface
from tests.telemetry.agent.samplers.sample_values import happened, losses, values


def test_interface_that_is_up_gives_all_readings_and_no_events(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0", downs=3, ups=4)
    sample = NicSampler(tmp_path).sample(1)
    assert values(sample) == {
        (Metric.NIC_UP, "eth0"): 1,
        (Metric.NIC_CARRIER_DOWNS, "eth0"): 3,
        (Metric.NIC_CARRIER_UPS, "eth0"): 4,
        (Metric.NIC_SPEED_MBPS, "eth0"): 25_000,
        (Metric.NIC_RECEIVE_BYTES, "eth0"): 1000,
        (Metric.NIC_SEND_BYTES, "eth0"): 2000,
        (Metric.NIC_ERRORS, "eth0"): 3 + 4,
        (Metric.NIC_DROPS, "eth0"): 5 + 6 + 7,
    }
    assert sample.events == ()


def test_levels_and_counters_are_distinguished(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    counters = {reading.metric for reading in NicSampler(tmp_path).sample(1).readings if reading.is_counter}
    assert counters == {
        *(Metric.NIC_CARRIER_DOWNS, Metric.NIC_CARRIER_UPS, Metric.NIC_RECEIVE_BYTES, Metric.NIC_SEND_BYTES),
        *(Metric.NIC_ERRORS, Metric.NIC_DROPS),
    }


def test_a_node_s_ethernet_interfaces_are_read_and_its_loopback_is_not(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    assert NicSampler(tmp_path).devices == ("eno1", "eno2")


def test_link_loss_and_return_are_reported_by_the_samples_that_find_them(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0)
    lost = sampler.sample(2)
    gain_link(eth0)
    back = sampler.sample(3)
    assert [(event.at_ns, event.name) for event in (*lost.events, *back.events)] == [
        (2, Happening.LINK_DOWN),
        (3, Happening.LINK_UP),
    ]
    assert (values(lost)[Metric.NIC_UP, "eth0"], values(back)[Metric.NIC_UP, "eth0"]) == (0, 1)
    assert lost.events[0].text == "no carrier, operstate down"


def test_link_losses_between_two_samples_are_reported_with_their_number(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0, times=7)
    gain_link(eth0)
    (event,) = sampler.sample(2).events
    assert (event.name, event.text) == (Happening.LINK_FLAPS, "7")


def test_last_of_several_losses_is_reported_as_link_down_when_the_link_stays_down(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0, times=4)
    events = sampler.sample(2).events
    assert [(event.name, event.text[:10]) for event in events] == [("link-flaps", "3"), ("link-down", "no carrier")]
    assert losses(events) == 4


def test_link_losses_are_correct_when_the_kernel_counts_only_changes(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0", downs=1, ups=1, without=("carrier_down_count", "carrier_up_count"))
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0, times=3)
    events = list(sampler.sample(2).events)
    gain_link(eth0)
    lose_link(eth0, times=2)
    gain_link(eth0)
    sample = sampler.sample(3)
    assert losses([*events, *sample.events]) == 5
    assert values(sample)[Metric.NIC_CARRIER_DOWNS, "eth0"] == 1 + 5


def test_link_events_follow_the_carrier_when_the_kernel_has_no_counts(tmp_path: Path) -> None:
    counts = ("carrier_down_count", "carrier_up_count", "carrier_changes")
    eth0 = made_interface(tmp_path, "eth0", without=counts)
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0)
    assert happened(sampler.sample(2)) == [("link-down", "eth0")]
    gain_link(eth0)
    assert happened(sampler.sample(3)) == [("link-up", "eth0")]


def test_link_that_was_down_before_sampling_is_reported_as_already_down(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0", carrier="0", downs=2, ups=2)
    sampler = NicSampler(tmp_path)
    first = sampler.sample(1)
    assert happened(first) == [("link-down", "eth0")]
    assert first.events[0].text.startswith(LINK_ALREADY_DOWN)
    gain_link(eth0)
    assert happened(sampler.sample(2)) == [("link-up", "eth0")]
    assert losses(first.events) == 0


def test_taken_down_interface_is_found_by_its_flags_when_the_carrier_is_unreadable(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    sampler.close()
    (eth0 / "carrier").unlink()
    (eth0 / "carrier").mkdir()
    sampler = NicSampler(tmp_path)
    assert sampler.sample(1).events == ()
    (eth0 / "flags").write_text("0x1002\n")
    sample = sampler.sample(2)
    assert happened(sample) == [("link-taken-down", "eth0")]
    assert values(sample)[Metric.NIC_UP, "eth0"] == 0


@pytest.mark.parametrize("speed", ["-1", "4294967295", "", "unknown"])
def test_a_speed_that_the_driver_does_not_know_is_left_out(tmp_path: Path, speed: str) -> None:
    made_interface(tmp_path, "eth0", speed=speed)
    assert (Metric.NIC_SPEED_MBPS, "eth0") not in values(NicSampler(tmp_path).sample(1))


def test_a_link_that_comes_back_slower_is_read_with_its_new_speed(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0)
    assert (Metric.NIC_SPEED_MBPS, "eth0") not in values(sampler.sample(2))
    gain_link(eth0)
    (eth0 / "speed").write_text("10000\n")
    assert values(sampler.sample(3))[Metric.NIC_SPEED_MBPS, "eth0"] == 10_000


def test_other_readings_continue_when_any_one_file_is_missing_or_invalid(tmp_path: Path) -> None:
    names = [path.name for path in made_interface(tmp_path, "model").rglob("*") if path.is_file()]
    for number, name in enumerate(names):
        made_interface(tmp_path, f"gone{number}", without=(name, f"statistics/{name}"))
        for kind in ("garbage", "folder", "dangling"):
            interface = made_interface(tmp_path, f"{kind}{number}")
            path = next(path for path in interface.rglob(name))
            path.unlink()
            if kind == "garbage":
                path.write_bytes(b"\xff\x00\xfe 12 \x80")
            elif kind == "folder":
                path.mkdir()
            else:
                path.symlink_to(tmp_path / "nowhere")
    sampler = NicSampler(tmp_path, choice=InterfaceChoice(at_most=500))
    samples = [sampler.sample(at_ns) for at_ns in range(8)]
    assert {len(sample.events) for sample in samples} == {0}
    read = [device for _, device in values(samples[-1])]
    assert read.count("model") == 8
    assert {read.count(device) for device in sampler.devices} <= {6, 7, 8}


def test_new_interface_is_read_after_a_rescan_and_its_earlier_losses_are_not_reported(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path, rescan_every=2)
    sampler.sample(1)
    eth1 = made_interface(tmp_path, "eth1", downs=9, ups=10)
    sample = sampler.sample(2)
    assert (Metric.NIC_UP, "eth1") in values(sample)
    assert sample.events == ()
    lose_link(eth1)
    assert losses(sampler.sample(3).events) == 1


def test_removed_interface_is_reported_gone_once_and_others_are_still_read(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    eth1 = made_interface(tmp_path, "eth1")
    sampler = NicSampler(tmp_path, rescan_every=1)
    sampler.sample(1)
    shutil.rmtree(eth1)
    sample = sampler.sample(2)
    assert happened(sample) == [("device-gone", "eth1")]
    assert {device for _, device in values(sample)} == {"eth0"}
    assert sampler.sample(3).events == ()


def test_replaced_interface_is_reported_gone_and_the_new_one_has_its_own_counts(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0", downs=5, ups=6)
    sampler = NicSampler(tmp_path, rescan_every=1)
    sampler.sample(1)
    shutil.rmtree(eth0)
    made_interface(tmp_path, "eth0", downs=1, ups=2)
    (eth0 / "ifindex").write_text("800000\n")
    sample = sampler.sample(2)
    assert happened(sample) == [("device-gone", "eth0")]
    assert values(sample)[Metric.NIC_CARRIER_DOWNS, "eth0"] == 1


def test_nic_sampler_raises_gone_error_when_no_interface_is_left(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    sampler = NicSampler(tmp_path, rescan_every=1)
    sampler.sample(1)
    shutil.rmtree(tmp_path / "class")
    with pytest.raises(GoneError):
        sampler.sample(2)


def test_readings_are_the_same_when_few_file_descriptors_are_allowed(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    plenty, scarce = NicSampler(tmp_path), NicSampler(tmp_path, descriptors=Descriptors(3))
    assert scarce.sample(1) == plenty.sample(1)
    assert scarce.sample(2) == plenty.sample(2)


def test_closing_twice_is_safe_and_leaves_no_file_open(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    descriptors = Descriptors(1000)
    sampler = NicSampler(tmp_path, descriptors=descriptors)
    sampler.sample(1)
    sampler.close()
    sampler.close()
    assert sum(descriptors.take() for _ in range(1001)) == 1000
