"""Which interfaces of a host are sampled."""

from pathlib import Path

import pytest

from telemetry.agent.samplers.nic import InterfaceChoice
from telemetry.errors import UsageError
from tests.telemetry.agent.samplers.made_sysfs import made_interface


def found(root: Path, choice: InterfaceChoice | None = None) -> list[str]:
    return (choice or InterfaceChoice()).found(root / "class" / "net")


@pytest.mark.parametrize("name", ["eth0", "eno1", "ens3f0np0", "enp1s0", "ib0", "bond0", "data0", "mgmt0", "rdma0"])
def test_nics_bonds_and_the_nics_of_a_namespace_are_chosen(tmp_path: Path, name: str) -> None:
    made_interface(tmp_path, name, has_hardware=False)
    assert found(tmp_path) == [name]


@pytest.mark.parametrize(
    "name", ["lo", "docker0", "br-1a2b3c", "cali12345", "veth77aa", "virbr0", "ifb0", "cilium_host"]
)
def test_loopback_bridges_and_container_interfaces_are_left_out(tmp_path: Path, name: str) -> None:
    made_interface(tmp_path, name, has_hardware=False)
    assert found(tmp_path) == []


@pytest.mark.parametrize("kind", ["bridge", "vlan", "vxlan"])
def test_bridge_vlan_and_vxlan_interfaces_are_left_out(tmp_path: Path, kind: str) -> None:
    (made_interface(tmp_path, "net7") / "uevent").write_text(f"DEVTYPE={kind}\nINTERFACE=net7\n")
    assert found(tmp_path) == []


def test_a_bond_is_chosen_though_it_has_no_hardware_of_its_own(tmp_path: Path) -> None:
    (made_interface(tmp_path, "net7", has_hardware=False) / "uevent").write_text("DEVTYPE=bond\n")
    assert found(tmp_path) == ["net7"]


def test_tunnels_and_other_kinds_of_device_are_left_out(tmp_path: Path) -> None:
    (made_interface(tmp_path, "net0") / "type").write_text("65534\n")
    (made_interface(tmp_path, "net1") / "tun_flags").write_text("0x1\n")
    (made_interface(tmp_path, "ib0") / "type").write_text("32\n")
    assert found(tmp_path) == ["ib0"]


def test_bridge_port_is_chosen_only_when_it_is_a_real_nic(tmp_path: Path) -> None:
    (made_interface(tmp_path, "eth0") / "brport").mkdir()
    (made_interface(tmp_path, "pod0", has_hardware=False) / "brport").mkdir()
    assert found(tmp_path) == ["eth0"]


def test_only_requested_interfaces_are_chosen_whatever_their_kind(tmp_path: Path) -> None:
    for name in ("docker0", "eth0", "lo"):
        made_interface(tmp_path, name)
    assert found(tmp_path, InterfaceChoice(wanted=("docker*", "lo"))) == ["docker0", "lo"]


def test_real_nics_are_chosen_first_when_there_are_too_many_interfaces(tmp_path: Path) -> None:
    for number in range(5):
        made_interface(tmp_path, f"a{number}", has_hardware=False)
    for name in ("z0", "z1"):
        made_interface(tmp_path, name)
    assert found(tmp_path, InterfaceChoice(at_most=3)) == ["z0", "z1", "a0"]


def test_plain_file_in_the_interface_folder_is_not_chosen(tmp_path: Path) -> None:
    made_interface(tmp_path, "eth0")
    (tmp_path / "class" / "net" / "bonds").write_text("\n")
    assert found(tmp_path) == ["eth0"]


def test_limit_of_zero_interfaces_raises_usage_error() -> None:
    with pytest.raises(UsageError):
        InterfaceChoice(at_most=0)
