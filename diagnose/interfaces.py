"""Which network cards carry the job's collectives, as far as its own settings tell."""

from collections.abc import Mapping, Sequence

from diagnose.outages import Outage


def may_carry(words: Sequence[Mapping[str, str]], outage: Outage) -> bool:
    """Whether the collectives may go over the card of ``outage``. True where no rank says otherwise.

    ``words``: what ranks said about themselves (``RunView.words``). gloo sends over the interfaces that
    GLOO_SOCKET_IFNAME names, NCCL over those of NCCL_SOCKET_IFNAME where it is kept off InfiniBand.
    """
    told = next((one for one in words if one.get("backend")), {})
    named = _named(told)
    return not named or _base(outage.device) in {_base(name) for name in named}


def _named(told: Mapping[str, str]) -> list[str]:
    """Names of interfaces; none where there are none, or only patterns of what is left out."""
    variable = ""
    if told.get("backend") == "gloo":
        variable = "GLOO_SOCKET_IFNAME"
    elif told.get("backend") == "nccl" and told.get("NCCL_IB_DISABLE") == "1":
        variable = "NCCL_SOCKET_IFNAME"
    names = told.get(variable, "")
    exact = names.startswith("=") or variable == "GLOO_SOCKET_IFNAME"
    return [name for name in names.removeprefix("=").split(",") if name] if exact else []


def _base(device: str) -> str:
    """``eth0.7`` and ``eth0`` are one card."""
    return device.partition(".")[0].strip()
