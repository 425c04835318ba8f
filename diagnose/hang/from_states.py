"""Live state pages of a job's ranks as evidence: operations by the mesh axes of their group, and the open stage.

    a row of operations   "mask"   bit mask of axes of the mesh (bit i: the i-th), 0 or absent: not known
                          "axis"   of older agents: a direction of the plain grid, dp, pp or tp; null: not known
                          "ranks"  the members, if the page names them

A page shows what the host is blocked in. If the innermost open stage is compute or host work, the rank does not wait
for pending transfers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from diagnose.hang.evidence import (
    NAMELESS,
    WHOLE_GROUP,
    Ended,
    Front,
    Group,
    GroupTable,
    HangEvidence,
    Pending,
    Process,
    RankEvidence,
)
from telemetry.records import agreed_topology, topology_from
from telemetry.stages import STAGE_BY_LABEL, Stage, StageClass
from telemetry.topology import AXES, Topology

SENDS = ("forward-send", "backward-send")
RECEIVES = ("forward-recv", "backward-recv")
UNEQUAL_SIZES = tuple(stage.label for stage in Stage if stage.label.endswith("all-to-all"))
"""Operations in which each rank receives a different number of bytes."""


@dataclass(slots=True, eq=False, kw_only=True)
class _Groups(GroupTable):
    """Groups of the grid, added when they occur."""

    topology: Topology
    found: dict[tuple[int, int], int] = field(default_factory=dict)
    """Mask and rank -> index of the rank's group along these axes. It is found once for all its members."""

    def of(self, rank: int, row: Mapping[str, Any], ordinal: int) -> int:
        """Index of a row's group. ``ordinal`` separates groups along no known axis. Such a group is assumed to have all
        ranks."""
        members, mask = _members(row, self.topology), _mask(row, self.topology)
        if members:
            return self._add(" x ".join(self.topology.axes_of(mask)) or "a group", members)
        if mask:
            return self._along(mask, rank)
        name = "all ranks" if ordinal == 0 else f"all ranks ({ordinal + 1})"
        return self._add(name, tuple(range(self.topology.world_size)), complete=False)

    def _along(self, mask: int, rank: int) -> int:
        if (mask, rank) not in self.found:
            members = self.topology.group_of(rank, mask)
            index = self._add(" x ".join(self.topology.axes_of(mask)), members)
            self.found.update(((mask, member), index) for member in members)
        return self.found[mask, rank]

    def _add(self, name: str, members: tuple[int, ...], *, complete: bool = True) -> int:
        return self.add(Group(name=name, members=members, complete=complete), (name, members))


def _mask(row: Mapping[str, Any], topology: Topology) -> int:
    """The axes of a row's group as a bit mask; 0: not known."""
    if mask := topology.known_mask(int(row.get("mask") or 0)):
        return mask
    axis = row.get("axis")
    return topology.replica_mask if axis == "dp" else topology.mask(axis) if axis in AXES else 0


def _members(row: Mapping[str, Any], topology: Topology) -> tuple[int, ...]:
    """The ranks that a row names; empty if it names none, or ranks that the mesh does not have."""
    ranks = tuple(sorted({int(rank) for rank in row.get("ranks") or ()}))
    return ranks if ranks and ranks[0] >= 0 and ranks[-1] < topology.world_size else ()


def evidence_from_states(states: Mapping[int, Mapping[str, Any]]) -> HangEvidence:
    """The evidence in state pages. ``states``: rank -> the JSON object of its state page.

    Raises:
        KeyError, ValueError, TypeError: a field is missing or is not what it should be.
        UsageError: an impossible grid.
    """
    stated = (states[rank]["topology"] for rank in sorted(states))
    topology = agreed_topology(
        Counter(topology_from({axis: grid[axis] for axis in AXES}, str(grid.get("mesh") or "")) for grid in stated)
    )
    groups = _Groups(topology=topology)
    known = {rank: state for rank, state in states.items() if 0 <= rank < topology.world_size}
    return HangEvidence(
        world_size=topology.world_size,
        topology=topology,
        ranks={rank: _rank(rank, state, groups) for rank, state in known.items()},
        groups=tuple(groups.groups),
        taken_ns=max((int(state["at_ns"]) for state in known.values()), default=0),
    )


def _rank(rank: int, state: Mapping[str, Any], groups: _Groups) -> RankEvidence:
    innermost: Mapping[str, Any] = state["open"][-1] if state["open"] else {"stage": "", "since_ns": 0}
    stage, since_ns = str(innermost["stage"]), int(innermost["since_ns"])
    fronts: dict[int, Front] = {}
    pending: list[Pending] = []
    ended: dict[int, tuple[Ended, ...]] = {}
    unnamed = 0
    for row in state["operations"]:
        if row["peer"] != WHOLE_GROUP:
            pending.extend(_transfer(row, groups.of(rank, row, 0)))
            continue
        group = groups.of(rank, row, unnamed)
        unnamed += not groups.groups[group].complete
        fronts[group] = Front(
            entered=int(row["issued"]), completed=int(row["completed"]), entered_ns=int(row["issued_ns"])
        )
        pending.extend(_collective(row, group))
        ended[group] = tuple(_ended(row))
    blocked_in = _blocked_in(pending, stage, since_ns)
    return RankEvidence(
        rank=rank,
        host=str(state.get("host", "")),
        process=Process(state["process"]),
        living=Process(state.get("living", "unknown")),
        died_ns=stamp(state.get("died_ns", 0)),
        ended_by=str(state.get("ended_by", "")),
        taken_ns=stamp(state["at_ns"]),
        recorded=int(state.get("recorded", 0)),
        step=int(state["step"]),
        step_since_ns=next((int(span["since_ns"]) for span in state["open"] if span["stage"] == Stage.STEP.label), 0),
        stage=stage,
        stage_since_ns=since_ns or int(state["beat_ns"]),
        fronts=fronts,
        ended=ended,
        pending=tuple(sorted(pending, key=lambda op: (op is not blocked_in, op.since_ns))),
        on_host=blocked_in is None,
    )


def stamp(value: Any) -> int:
    """``value`` as nanoseconds since the epoch. Raises ``ValueError`` if it is out of range."""
    if not 0 <= int(value) < 2**63:
        raise ValueError(f"a time of {value}")
    return int(value)


def _transfer(row: Mapping[str, Any], group: int) -> Iterator[Pending]:
    if row["issued"] > row["completed"]:
        label = str(row["stage"] or "")
        op = "send" if label in SENDS else "recv" if label in RECEIVES else "transfer"
        yield Pending(
            group=group,
            seq=int(row["completed"]) + 1,
            op=op,
            is_transfer=True,
            peer=int(row["peer"]),
            signature=label,
            since_ns=int(row["issued_ns"]),
        )


def _collective(row: Mapping[str, Any], group: int) -> Iterator[Pending]:
    """The pending operation of a row, if any. The page has stage and size of the newest operation only."""
    if row["issued"] > row["completed"]:
        newest = row["issued"] == row["completed"] + 1
        usual = row.get("usual")
        yield Pending(
            group=group,
            seq=int(row["completed"]) + 1,
            op=str(row["stage"] or NAMELESS),
            signature=_signature(row["stage"], row["size_bytes"]) if newest else "",
            usual=_signature(usual["stage"], usual["size_bytes"]) if newest and usual else "",
            since_ns=int(row["issued_ns"]),
        )


def _ended(row: Mapping[str, Any]) -> Iterator[Ended]:
    for call in row.get("recent", ()):
        yield Ended(seq=int(call["seq"]), signature=_signature(call["stage"], call["size_bytes"]))
    if row["issued"] == row["completed"]:
        yield Ended(seq=int(row["issued"]), signature=_signature(row["stage"], row["size_bytes"]))


def _signature(label: str | None, size_bytes: int) -> str:
    """Stage and size, to compare members. Empty for operations without a stage, because members of a gather may issue
    different sizes. Members of an all-to-all may, too, so its size is left out."""
    if not label or label in UNEQUAL_SIZES:
        return label or ""
    return f"{label} of {size_bytes} bytes"


def _blocked_in(pending: list[Pending], stage: str, since_ns: int) -> Pending | None:
    """The operation that the host waits for. None if the host does not wait.

    Waiting opens the stage of the operation. An operation without a stage, such as a barrier, opens none.
    """
    known = STAGE_BY_LABEL.get(stage)
    if known is not None and known.stage_class is StageClass.COMMUNICATION:
        same = [op for op in pending if stage in (op.op, op.signature)]
        return min(same, key=lambda op: op.since_ns, default=None) or (pending[0] if pending else None)
    nameless = [op for op in pending if op.op in (NAMELESS, "transfer") and op.since_ns >= since_ns]
    return min(nameless, key=lambda op: op.since_ns, default=None)
