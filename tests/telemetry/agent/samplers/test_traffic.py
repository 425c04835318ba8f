"""The sampler for quick samples: bytes and nothing else."""

import shutil
from pathlib import Path

import pytest

from telemetry.agent.samplers.interface import GoneError
from telemetry.agent.samplers.network import TrafficSampler
from telemetry.agent.samplers.nic import NicSampler
from telemetry.agent.samplers.rdma import RdmaSampler
from telemetry.host_metrics import Metric
from tests.telemetry.agent.samplers.made_sysfs import lose_link, made_h100_node, made_interface
from tests.telemetry.agent.samplers.sample_values import values


def test_bytes_of_every_interface_and_port_are_read_and_nothing_else(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    metrics = {reading.metric for reading in TrafficSampler(tmp_path).sample(1).readings}
    assert metrics == {
        *(Metric.NIC_RECEIVE_BYTES, Metric.NIC_SEND_BYTES),
        *("rdma-port_rcv_data", "rdma-port_xmit_data"),
    }


def test_its_bytes_are_those_of_the_other_samplers(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    others = values(NicSampler(tmp_path).sample(1)) | values(RdmaSampler(tmp_path, clock=lambda: 0).sample(1))
    traffic = values(TrafficSampler(tmp_path).sample(1))
    assert len(traffic) == 2 * (2 + 8)
    assert traffic.items() <= others.items()


def test_a_link_that_goes_is_not_its_to_tell(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0)
    assert sampler.sample(2).events == ()


def test_interfaces_come_and_go_with_a_rescan(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path, rescan_every=2)
    sampler.sample(1)
    shutil.rmtree(eth0)
    made_interface(tmp_path, "eth1")
    sampler.sample(2)
    assert sampler.devices == ("eth1",)


def test_a_machine_whose_network_is_gone_for_good_ends_it(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path, rescan_every=1)
    shutil.rmtree(tmp_path / "class")
    with pytest.raises(GoneError):
        sampler.sample(1)
