"""The network settings of a job determine which network cards can have delayed it."""

from diagnose.model.outages import Outage, may_carry
from tests.each_case import each_case

SOCKETS = {"backend": "nccl", "NCCL_IB_DISABLE": "1"}
IB = {"backend": "nccl"}


@each_case(
    ("words", "device", "expected"),
    [
        ({}, "eth0", True),
        ({"backend": "gloo"}, "eth0", True),
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth0,eth1"}, "eth1", True),
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth0.7"}, "eth0", True),
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth"}, "eth0", False),
        ({"backend": "gloo", "GLOO_SOCKET_IFNAME": "eth0"}, "mlx5_0/1", False),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "eth,ib"}, "ib3", True),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "eth,ib"}, "bond0", False),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "=eth1"}, "eth10", False),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "=eth1.7,eth2"}, "eth1", True),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "^docker,lo"}, "docker0", False),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "^docker,lo"}, "eth0", True),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "^=eth1"}, "eth1", False),
        ({**SOCKETS, "NCCL_SOCKET_IFNAME": "^=eth1"}, "eth10", True),
        (SOCKETS, "mlx5_0/1", False),
        (IB, "mlx5_0/1", True),
        ({**IB, "NCCL_SOCKET_IFNAME": "=eth0"}, "eth1", True),
        ({**IB, "NCCL_IB_HCA": "mlx5"}, "mlx5_3/1", True),
        ({**IB, "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}, "mlx5_1/1", True),
        ({**IB, "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"}, "mlx5_1/2", False),
        ({**IB, "NCCL_IB_HCA": "=mlx5_1"}, "mlx5_1/2", True),
        ({**IB, "NCCL_IB_HCA": "=mlx5_1"}, "mlx5_10/1", False),
        ({**IB, "NCCL_IB_HCA": "^mlx5_3"}, "mlx5_3/1", False),
        ({**IB, "NCCL_IB_HCA": "^=mlx5_3:1"}, "mlx5_3/2", True),
        ({**IB, "NCCL_IB_HCA": ","}, "mlx5_3/1", True),
    ],
)
def test_network_cards_are_selected_by_the_rules_of_gloo_and_nccl(
    words: dict[str, str], device: str, expected: bool
) -> None:
    outage = Outage(host="h0", device=device, down_ns=0, up_ns=1, count=1)
    assert may_carry([{}, words], outage.device) is expected
