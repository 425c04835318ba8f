"""Which few ranks are queried so that every host is covered.

    a group of collectives    one rank of each host, if it spans several; one group for the same set of hosts.
                              Parameters and gradients use any axes that the grid's dp direction counts
    neighbours along pp       one pair for the same two hosts; a few pairs between the same two sets of hosts that
                              groups connect

For 12,288 ranks on 1,536 hosts that is one rank a host.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from telemetry.group_names import Purpose
from telemetry.stages import Stage
from telemetry.topology import Topology

COLLECTIVES: dict[Purpose, tuple[Stage, ...]] = {
    "dp": (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.GRADS_ALL_REDUCE),
    "tp": (
        *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.TP_ALL_REDUCE, Stage.TP_ALL_TO_ALL),
        Stage.LAYERNORM_GRADS_ALL_REDUCE,
    ),
    "cp": (Stage.CP_ALL_GATHER, Stage.CP_REDUCE_SCATTER, Stage.CP_ALL_REDUCE, Stage.CP_ALL_TO_ALL),
    "ep": (Stage.EP_ALL_TO_ALL, Stage.EP_ALL_GATHER, Stage.EP_REDUCE_SCATTER),
}
"""Those that no member leaves before all have come."""
Groups = tuple[tuple[int, ...], ...]
"""Ranks, each on a host of its own."""
TRANSFERS = ((Stage.FORWARD_SEND, Stage.FORWARD_RECV), (Stage.BACKWARD_SEND, Stage.BACKWARD_RECV))

MAX_BRIDGES = 8
"""Pairs between two sets of hosts: the tightest of them counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Who is asked."""

    topology: Topology
    groups: dict[Purpose, dict[int, Groups]]
    """By what the collectives are for, and the bit mask of the axes along which the groups lie. The first mask is that
    of spans whose group is not recorded."""
    pairs: frozenset[tuple[int, int]]
    """Pipeline neighbours on two hosts, both ways."""

    @property
    def paired(self) -> tuple[int, ...]:
        return tuple(sorted({rank for pair in self.pairs for rank in pair}))

    def grouped(self, purpose: Purpose) -> tuple[int, ...]:
        found = self.groups[purpose].values()
        return tuple(sorted({rank for groups in found for group in groups for rank in group}))


def choose_places(topology: Topology, hosts: Sequence[str]) -> Places:
    """``hosts``: of each rank; empty text where it is not known."""
    groups = {
        purpose: {mask: _groups(topology, hosts, mask) for mask in _masks(topology, purpose)} for purpose in COLLECTIVES
    }
    return Places(
        topology=topology,
        groups=groups,
        pairs=_pairs(topology, hosts, [found for by_mask in groups.values() for found in by_mask.values()]),
    )


def _masks(topology: Topology, purpose: Purpose) -> list[int]:
    """Along which axes such groups may lie. Axes of one rank make no difference."""
    wide = topology.replica_mask if purpose == "dp" else topology.wide_mask(purpose)
    return [mask for mask in range(wide, 0, -1) if mask & wide == mask]


def _groups(topology: Topology, hosts: Sequence[str], mask: int) -> Groups:
    chosen: dict[frozenset[str], tuple[int, ...]] = {}
    for group in topology.members(mask).tolist():
        first_of: dict[str, int] = {}
        for rank in group:
            if hosts[rank]:
                first_of.setdefault(hosts[rank], rank)
        if len(first_of) > 1:
            chosen.setdefault(frozenset(first_of), tuple(first_of.values()))
    return tuple(chosen.values())


def _pairs(topology: Topology, hosts: Sequence[str], groups: Iterable[Groups]) -> frozenset[tuple[int, int]]:
    held = _held_together(hosts, groups)
    chosen: dict[frozenset[str], tuple[int, int]] = {}
    bridges: Counter[frozenset[str]] = Counter()
    for group in topology.groups(along="pp") if topology.pp > 1 else ():
        for a, b in zip(group, (*group[1:], group[0]), strict=True):
            met, sets = frozenset((hosts[a], hosts[b])), frozenset((held[hosts[a]], held[hosts[b]]))
            if len(met) == 2 and "" not in met and met not in chosen and bridges[sets] < MAX_BRIDGES:
                chosen[met] = (a, b)
                bridges[sets] += 1
    return frozenset({*chosen.values(), *((b, a) for a, b in chosen.values())})


def _held_together(hosts: Sequence[str], groups: Iterable[Groups]) -> dict[str, str]:
    """Of each host one that stands for the set of hosts that its groups reach."""
    above = {host: host for host in hosts}

    def top(host: str) -> str:
        while above[host] != host:
            above[host] = host = above[above[host]]
        return host

    for group in (group for of_mask in groups for group in of_mask):
        for rank in group[1:]:
            above[top(hosts[rank])] = top(hosts[group[0]])
    return {host: top(host) for host in above}
