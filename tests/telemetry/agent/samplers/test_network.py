"""Which network samplers a host gets."""

import socket
import threading
from pathlib import Path

from telemetry.agent.samplers.network import open_network_samplers
from tests.telemetry.agent.samplers.made_sysfs import made_h100_node, made_interface, made_port
from tests.telemetry.agent.samplers.sample_values import values
from tests.telemetry.agent.samplers.test_tcp import TABLE, snmp


def names(root: Path, *, fine: bool = False) -> list[str]:
    return [sampler.name for sampler in open_network_samplers(sysfs=root, proc=root, fine=fine)]


def test_host_without_network_files_gets_no_network_sampler(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    assert names(tmp_path, fine=True) == []


def test_node_with_nic_rdma_and_tcp_gets_every_network_sampler(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    snmp(tmp_path, TABLE.format(retransmits=1))
    assert names(tmp_path) == ["nic", "rdma", "tcp"]
    assert names(tmp_path, fine=True) == ["traffic"]


def test_host_with_only_rdma_gets_only_the_rdma_sampler(tmp_path: Path) -> None:
    made_port(tmp_path, "mlx5_0")
    assert names(tmp_path) == ["rdma"]


def test_only_interfaces_that_match_the_requested_pattern_are_sampled(tmp_path: Path) -> None:
    for name in ("eth0", "eth1", "ib0"):
        made_interface(tmp_path, name)
    (nic,) = open_network_samplers(sysfs=tmp_path, proc=tmp_path, interfaces=("ib*",))
    assert {device for _, device in values(nic.sample(1))} == {"ib0"}


def test_no_netlink_listener_starts_when_the_files_show_another_machine(tmp_path: Path) -> None:
    made_interface(tmp_path, "eno1")
    for _, name in socket.if_nameindex():
        made_interface(tmp_path, name)
    before = threading.active_count()
    samplers = open_network_samplers(sysfs=tmp_path, proc=tmp_path)
    assert threading.active_count() == before
    for sampler in samplers:
        sampler.close()


def test_network_samplers_of_this_machine_can_be_sampled_and_closed() -> None:
    before = threading.active_count()
    samplers = open_network_samplers()
    assert "tcp" in [sampler.name for sampler in samplers]
    for sampler in samplers:
        sampler.sample(1)
        sampler.sample(2)
        sampler.close()
        sampler.close()
    assert threading.active_count() == before
