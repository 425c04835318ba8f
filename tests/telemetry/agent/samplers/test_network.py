"""Which samplers of the network a host gets."""

import socket
import threading
from pathlib import Path

from telemetry.agent.samplers.network import open_network_samplers
from tests.telemetry.agent.samplers.made_sysfs import made_h100_node, made_interface, made_port
from tests.telemetry.agent.samplers.sample_values import values
from tests.telemetry.agent.samplers.test_tcp import TABLE, snmp


def names(root: Path, *, fine: bool = False) -> list[str]:
    return [sampler.name for sampler in open_network_samplers(sysfs=root, proc=root, fine=fine)]


def test_a_host_without_anything_to_read_gets_no_sampler(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    assert names(tmp_path, fine=True) == []


def test_a_node_with_everything_gets_all(tmp_path: Path) -> None:
    made_h100_node(tmp_path)
    snmp(tmp_path, TABLE.format(retransmits=1))
    assert names(tmp_path) == ["nic", "rdma", "tcp"]
    assert names(tmp_path, fine=True) == ["traffic"]


def test_a_host_of_rdma_alone_gets_that_alone(tmp_path: Path) -> None:
    made_port(tmp_path, "mlx5_0")
    assert names(tmp_path) == ["rdma"]


def test_interfaces_asked_for_by_name_are_the_only_ones(tmp_path: Path) -> None:
    for name in ("eth0", "eth1", "ib0"):
        made_interface(tmp_path, name)
    (nic,) = open_network_samplers(sysfs=tmp_path, proc=tmp_path, interfaces=("ib*",))
    assert {device for _, device in values(nic.sample(1))} == {"ib0"}


def test_files_that_show_another_machine_are_not_joined_with_this_one_s_news(tmp_path: Path) -> None:
    made_interface(tmp_path, "eno1")
    for _, name in socket.if_nameindex():
        made_interface(tmp_path, name)
    before = threading.active_count()
    samplers = open_network_samplers(sysfs=tmp_path, proc=tmp_path)
    assert threading.active_count() == before
    for sampler in samplers:
        sampler.close()


def test_this_machine_s_network_can_be_looked_at_and_let_go() -> None:
    before = threading.active_count()
    samplers = open_network_samplers()
    assert "tcp" in [sampler.name for sampler in samplers]
    for sampler in samplers:
        sampler.sample(1)
        sampler.sample(2)
        sampler.close()
        sampler.close()
    assert threading.active_count() == before
