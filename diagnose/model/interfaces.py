"""Which network cards carry the job's collectives, as far as its own settings tell."""

from collections.abc import Mapping, Sequence

from diagnose.model.outages import Outage


def may_carry(words: Sequence[Mapping[str, str]], outage: Outage) -> bool:
    """Whether the collectives may go over the card of ``outage``. True where no rank says otherwise.

    ``words``: what ranks said about themselves (``RunView.words``). gloo sends over the interfaces that
    GLOO_SOCKET_IFNAME names. NCCL sends over InfiniBand, of the cards that NCCL_IB_HCA chooses; or, where it is kept
    off it (NCCL_IB_DISABLE), over sockets, of the interfaces that NCCL_SOCKET_IFNAME chooses.
    """
    told = next((one for one in words if one.get("backend")), {})
    device = outage.device
    match told.get("backend"), told.get("NCCL_IB_DISABLE") == "1", _is_rdma(device):
        case "gloo", _, _:
            names = told.get("GLOO_SOCKET_IFNAME", "")
            return not names or _is_chosen(f"={names}", _base(device))
        case "nccl", True, is_rdma:
            return not is_rdma and _is_chosen(told.get("NCCL_SOCKET_IFNAME", ""), _base(device))
        case "nccl", False, True:
            return _is_chosen(told.get("NCCL_IB_HCA", ""), device.replace("/", ":"))
        case _:
            return True


def _is_chosen(choice: str, name: str) -> bool:
    """NCCL's way to choose: ``eth,ib`` what begins so, ``=eth0,eth1`` these, ``^...`` and ``^=...`` all others.

    Of an RDMA card, ``mlx5_0:1``, a choice may leave out the port.
    """
    others = choice.startswith("^")
    listed = choice.removeprefix("^")
    exact = listed.startswith("=")
    names = [one.strip() for one in listed.removeprefix("=").split(",") if one.strip()]
    if not others:
        names = [_base(one) for one in names]
    among = any(_names(one, name) if exact else name.startswith(one) for one in names)
    return not names or among != others


def _names(one: str, name: str) -> bool:
    return name == one or name.partition(":")[0] == one


def _is_rdma(device: str) -> bool:
    """A port of an RDMA card is told as ``mlx5_0/1``."""
    return "/" in device


def _base(device: str) -> str:
    """``eth0.7`` and ``eth0`` are one card."""
    return device.partition(".")[0].strip()
