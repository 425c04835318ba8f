"""The traffic sampler, for frequent samples: it reads only byte counters."""

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


def test_traffic_sampler_reads_only_byte_counters_of_interfaces_and_ports(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    metrics = {reading.metric for reading in TrafficSampler(tmp_path).sample(1).readings}
    assert metrics == {
        *(Metric.NIC_RECEIVE_BYTES, Metric.NIC_SEND_BYTES),
        *("rdma-port_rcv_data", "rdma-port_xmit_data"),
    }


def test_traffic_bytes_equal_those_of_the_nic_and_rdma_samplers(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    others = values(NicSampler(tmp_path).sample(1)) | values(RdmaSampler(tmp_path, clock=lambda: 0).sample(1))
    traffic = values(TrafficSampler(tmp_path).sample(1))
    assert len(traffic) == 2 * (2 + 8)
    assert traffic.items() <= others.items()


def test_traffic_sampler_reports_no_event_when_a_link_is_lost(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path)
    sampler.sample(1)
    lose_link(eth0)
    assert sampler.sample(2).events == ()


def test_rescan_adds_new_interfaces_and_drops_removed_ones(tmp_path: Path) -> None:
    eth0 = made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path, rescan_every=2)
    sampler.sample(1)
    shutil.rmtree(eth0)
    made_interface(tmp_path, "eth1")
    sampler.sample(2)
    assert sampler.devices == ("eth1",)


def test_traffic_sampler_raises_gone_error_when_no_interface_is_left(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    sampler = TrafficSampler(tmp_path, rescan_every=1)
    shutil.rmtree(tmp_path / "class")
    with pytest.raises(GoneError):
        sampler.sample(1)
