"""Replica groups: several jobs of torch that train one model together and replace each other, as in torchft.

    group 0    RANK 0 1 2 3    ranks 0 1 2 3     mesh of a group   dp_shard=2,tp=2
    group 1    RANK 0 1 2 3    ranks 4 5 6 7     mesh of all       dp_replicate=2,dp_shard=2,tp=2

Within a group, torch numbers the ranks from 0. It does not know the other groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from telemetry.errors import UsageError

if TYPE_CHECKING:  # it needs NumPy, and settings do not
    from telemetry.topology import Topology

GROUP, NUM_GROUPS = "REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS"
"""Variables of torchft's launcher and examples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """The group of this process among all groups."""

    index: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "ReplicaGroup":
        """The only group, unless both variables are set.

        Raises:
            UsageError: the variables are not the number of a group and the number of groups.
        """
        texts = [environment.get(name, "").strip() for name in (GROUP, NUM_GROUPS)]
        if not all(texts):
            return cls()
        if not all(text.isascii() and text.isdecimal() for text in texts) or not int(texts[0]) < int(texts[1]):
            raise UsageError(
                f"{GROUP} is {texts[0]!r} and {NUM_GROUPS} is {texts[1]!r}",
                hint="number the groups from 0, or unset both",
            )
        return cls(index=int(texts[0]), count=int(texts[1]))

    def first_rank(self, num_ranks: int) -> int:
        """The rank in the whole job of the group's rank 0. ``num_ranks``: number of ranks in all groups."""
        return self.index * (num_ranks // self.count)

    def of_all(self, topology: "Topology") -> "Topology":
        """The mesh of all groups, if each group has the mesh ``topology``. If that has dp_replicate, but not as its
        slowest axis, all ranks count as replicas."""
        if self.count == 1:
            return topology
        wide = [(name, degree) for name, degree in topology.mesh if degree > 1]
        if any(name == "dp_replicate" for name, _ in wide[1:]):
            return type(topology)(mesh=(("dp_replicate", self.count * topology.world_size),))
        own = wide[0][1] if wide and wide[0][0] == "dp_replicate" else 1
        rest = tuple((name, degree) for name, degree in topology.mesh if name != "dp_replicate")
        return type(topology)(mesh=(("dp_replicate", self.count * own), *rest))


ONE_GROUP = ReplicaGroup()
