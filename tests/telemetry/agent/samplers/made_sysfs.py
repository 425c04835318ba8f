"""File trees in the layout of the kernel's documentation, with made numbers.

class/net/<interface>/          class/infiniband/<device>/ports/<port>/{,counters,hw_counters}
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

PORT_COUNTERS = (
    *("VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery"),
    *("local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors"),
    *("port_rcv_data", "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors"),
    *("port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards"),
    *("port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets"),
)
MLX5_COUNTERS = (
    *("duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err", "np_cnp_sent"),
    *("np_ecn_marked_roce_packets", "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error"),
    *("req_cqe_flush_error", "req_remote_access_errors", "req_rnr_retries_exceeded", "req_transport_retries_exceeded"),
    *("resp_cqe_error", "rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart", "roce_slow_restart_trans"),
    *("rp_cnp_handled", "rp_cnp_ignored", "rx_atomic_requests", "rx_icrc_encapsulated", "rx_read_requests"),
    "rx_write_requests",
)
MANA_COUNTERS = ("lifespan", "requester_timeout", "requester_oos_nak", "requester_rnr_nak", "rx_bytes", "tx_bytes")
BNXT_COUNTERS = (
    "lifespan",
    "active_qps",
    "to_retransmits",
    "seq_err_naks_rcvd",
    "rnr_naks_rcvd",
    "rx_pkts",
    "tx_bytes",
)
RXE_COUNTERS = ("lifespan", "sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "link_downed")


def made_interface(
    sysfs: Path,
    name: str,
    *,
    carrier: str = "1",
    downs: int = 1,
    ups: int = 2,
    speed: str = "25000",
    statistics: Mapping[str, int] | None = None,
    has_hardware: bool = True,
    without: Iterable[str] = (),
) -> Path:
    """One Ethernet interface; returns its folder. ``without``: files that its kernel or driver does not have."""
    folder = sysfs / "class" / "net" / name
    (folder / "statistics").mkdir(parents=True)
    if has_hardware:
        (folder / "device").mkdir()
    files = {
        "address": "0c:42:a1:00:00:01",
        "carrier": carrier,
        "carrier_changes": str(downs + ups),
        "carrier_down_count": str(downs),
        "carrier_up_count": str(ups),
        "flags": "0x1003",
        "ifindex": str(len(list(folder.parent.iterdir())) + 700_000),
        "operstate": "up" if carrier == "1" else "down",
        "speed": speed,
        "type": "1",
        "uevent": f"INTERFACE={name}\nIFINDEX=2",
    }
    numbers = {"rx_bytes": 1000, "tx_bytes": 2000, "rx_errors": 3, "tx_errors": 4, "rx_dropped": 5, "tx_dropped": 6}
    for file, number in {**numbers, "rx_missed_errors": 7, **(statistics or {})}.items():
        files[f"statistics/{file}"] = str(number)
    for file, text in files.items():
        if file not in without:
            (folder / file).write_text(text + "\n")
    return folder


def lose_link(interface: Path, *, times: int = 1) -> None:
    """Change the files as the kernel does when an interface loses its carrier and stays down."""
    _count(interface, downs=times, ups=times - 1)
    (interface / "carrier").write_text("0\n")
    (interface / "operstate").write_text("down\n")


def gain_link(interface: Path) -> None:
    _count(interface, downs=0, ups=1)
    (interface / "carrier").write_text("1\n")
    (interface / "operstate").write_text("up\n")


def made_port(
    sysfs: Path,
    device: str,
    *,
    port: int = 1,
    counters: Iterable[str] = PORT_COUNTERS,
    hw_counters: Iterable[str] = MLX5_COUNTERS,
    state: str = "4: ACTIVE",
    phys_state: str = "5: LinkUp",
    rate: str = "400 Gb/sec (4X NDR)",
) -> Path:
    """One RDMA port whose n-th file holds n; returns its folder."""
    folder = sysfs / "class" / "infiniband" / device / "ports" / str(port)
    for kind, names in (("counters", counters), ("hw_counters", hw_counters)):
        (folder / kind).mkdir(parents=True)
        for number, name in enumerate(names):
            (folder / kind / name).write_text(f"{number}\n")
    for file, text in (("state", state), ("phys_state", phys_state), ("rate", rate), ("link_layer", "InfiniBand")):
        (folder / file).write_text(text + "\n")
    return folder


def made_h100_node(sysfs: Path) -> None:
    """Eight InfiniBand ports for the GPUs and two Ethernet interfaces for the rest."""
    for number in range(8):
        made_port(sysfs, f"mlx5_{number}")
    for name in ("eno1", "eno2"):
        made_interface(sysfs, name)
    made_interface(sysfs, "lo", has_hardware=False)


def _count(interface: Path, *, downs: int, ups: int) -> None:
    for name, more in (("carrier_down_count", downs), ("carrier_up_count", ups), ("carrier_changes", downs + ups)):
        path = interface / name
        if path.exists():
            path.write_text(f"{int(path.read_text()) + more}\n")
