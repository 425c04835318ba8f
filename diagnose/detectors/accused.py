"""The accused of a finding: ranks of one host together when they are most of it, else each by itself."""

from collections.abc import Sequence

from diagnose.findings import Role, Suspect
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks
from telemetry.topology import Axis

WAITING: tuple[Axis, ...] = ("tp", "pp")
"""Along these a rank's neighbours stop with it at once."""


def sharing_a_cause(view: RunView, ranks: list[int]) -> list[list[int]]:
    """Ranks that share a cause: most of a host's, or all of a tensor-parallel group; else each alone."""
    hosts: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        hosts.setdefault(view.hosts[rank], []).append(rank)
    groups: list[list[int]] = []
    for host, members in hosts.items():
        whole = host and len(members) > 1 and 2 * len(members) > view.hosts.count(host)
        groups.extend([members] if whole else _by_tensor_group(view, members))
    return groups


def _by_tensor_group(view: RunView, ranks: list[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for rank in ranks:
        group = view.topology.group(rank, along="tp")
        groups.setdefault(group[0] if set(group) <= set(ranks) else -1 - rank, []).append(rank)
    return list(groups.values())


def initiating(view: RunView, ranks: Sequence[int]) -> tuple[Suspect, ...]:
    return tuple(Suspect(rank=rank, host=view.hosts[rank], role=Role.INITIATING) for rank in ranks)


def with_victims(view: RunView, ranks: Sequence[int]) -> tuple[Suspect, ...]:
    """The initiating ranks, then those that wait for them: their tensor and pipeline groups."""
    waiting = {peer for rank in ranks for axis in WAITING for peer in view.topology.group(rank, along=axis)}
    victims = tuple(
        Suspect(rank=rank, host=view.hosts[rank], role=Role.VICTIM) for rank in sorted(waiting - set(ranks))
    )
    return (*initiating(view, ranks), *victims)


def named(view: RunView, ranks: Sequence[int]) -> str:
    """``rank 5 (host gpu-03, dp1 pp0 tp1)``; ``host gpu-03 (ranks 4-7)`` for most of one; else ``ranks 4, 5``."""
    if len(ranks) == 1:
        return view.describe(ranks[0])
    (host, *others) = {view.hosts[rank] for rank in ranks}
    if host and not others and 2 * len(ranks) > view.hosts.count(host):
        return f"host {host} (ranks {fold_ranks(ranks)})"
    return f"ranks {fold_ranks(ranks)}"
