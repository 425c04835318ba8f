"""The place that explains slow groups: the only one in every slow group and in no fast group.

    slow   {1, 5}  {5, 7}         rank 1 is in the fast {1, 3}, rank 7 in the fast {3, 7}: it is rank 5
    fast   {1, 3}  {3, 7}  ...

A rank where one explains all, else a host. Collectives inside a host tell nothing about its network card: where all
slow groups cross hosts, only groups that cross hosts clear anybody (where all lie inside one host, only those inside
clear the host), and a host that is in every group there is to
compare with is not cleared by them: they would all be slow together.

Collectives that became slow and stay slow are compared with their own past, all that are alike together.

dp group {0, 4}  |==| |==| |==| |=====| |=====| |=====|      rises from the fourth step on
dp group {1, 5}  |==| |==| |==| |=====| |=====| |=====|      and so does the typical one of those alike
compute          |---| |---| |---| |---| |---| |---|         which keeps its pace: the machine is no busier
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.model.collectives import Collectives
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import MEDIAN_EFFICIENCY, Stretch, medians, robust_sigma
from diagnose.model.view import RunView
from telemetry.stages import Stage

MIN_RATIO = 1.5
MIN_Z = 6.0
NOISE_FLOOR = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """From one row on to the end."""

    row: int
    ratio: float
    """Beyond what compute takes longer."""
    share: float
    """Of rows that lie high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rises:
    """Of the groups of one stage, by their column."""

    slow: dict[int, Rise]
    """Those that became slow together with those alike, and themselves."""
    moved: set[int]
    """Those, and what did not stay as it was: in a decline that goes on, some rise late."""


def find_rises(collectives: Collectives, total_ns: Floats, view: RunView) -> Rises:
    """Where groups that are alike became slow, and which of them did."""
    found: dict[int, Rise] = {}
    moved: set[int] = set()
    pace = _pace_of_compute(view)
    for alike in np.unique(collectives.alike):
        columns = np.flatnonzero(collectives.alike == alike)
        typical = medians(total_ns[:, columns], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = _jump(np.log(typical), pace)
        row = len(total_ns) // 2 if rise is None else rise.row
        own = {column: _rose(total_ns[:, column], row) for column in columns.tolist()}
        if rise is not None:
            found.update({column: rise for column, ratio in own.items() if ratio >= np.sqrt(rise.ratio)})
        moved.update(found, (column for column, ratio in own.items() if ratio >= MIN_RATIO))
    return Rises(slow=found, moved=moved)


def _rose(total_ns: Floats, row: int) -> float:
    """By what factor a group is slower from ``row`` on than before; 0 where it never met on one side."""
    before, after = (float(medians(part, axis=0)) for part in (total_ns[:row], total_ns[row:]))
    return after / before if before > 0 and after > 0 else 0.0


def _pace_of_compute(view: RunView) -> Floats:
    """Log wall time that compute takes on a typical rank, [steps]: what a busier machine slows beside transfers."""
    compute = [view.operations[stage].total_ns() for stage in view.work if stage in view.operations]
    if not compute:
        return np.zeros(len(view.steps))
    return np.log(np.maximum(medians(np.sum(compute, axis=0), axis=1), 1.0))


def _jump(series: Floats, pace: Floats) -> Rise | None:
    """Where ``series`` (logs) begins to lie higher than ``pace`` explains; None where it does not, or not clearly, or
    comes back.
    """
    known = np.flatnonzero(np.isfinite(series) & np.isfinite(pace))
    values, count = series[known], len(known)
    if count < 2 * MIN_STEPS:
        return None
    before = np.arange(MIN_STEPS, count - MIN_STEPS + 1)
    sums = np.cumsum(values)
    gain = (sums[-1] - sums[before - 1]) / (count - before) - sums[before - 1] / before
    split = int(before[np.argmax(gain * np.sqrt(before * (count - before)))])
    low, high = float(np.median(values[:split])), float(np.median(values[split:]))
    slower = float(np.median(pace[known[split:]]) - np.median(pace[known[:split]]))
    noise = robust_sigma(np.concatenate([values[:split] - low, values[split:] - high]), NOISE_FLOOR)
    error = MEDIAN_EFFICIENCY * noise * np.sqrt(1.0 / split + 1.0 / (count - split))
    above = float(np.mean(values[split:] > (low + high) / 2))
    below = float(np.mean(values[:split] < (low + high) / 2))
    rise = high - low - max(0.0, slower)
    if rise < np.log(MIN_RATIO) or rise < MIN_Z * error or min(above, below) < 0.8:
        return None
    return Rise(row=int(known[split]), ratio=float(np.exp(rise)), share=above)


class Against(Enum):
    """What a slow group was compared with."""

    PEERS = "on their peers"
    PAST = "before"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowGroup:
    """A group whose transfers in one stage are slow."""

    stage: Stage
    ranks: tuple[int, ...]
    stretch: Stretch
    ratio: float
    share: float
    excess_ns: float
    """A step, median over the stretch."""
    against: Against


@dataclass(frozen=True, slots=True, kw_only=True)
class FastGroups:
    """Groups that are alike in one stage; each of [groups, members], global ranks."""

    unmoved: Ints
    """Those that take as long as before: of the steady ones, without those that are on their way."""
    steady: Ints
    """Those that did not slow down within the window."""
    fast: Ints
    """Those as fast as the rest."""
    everyone: Ints
    """All of them, the slow ones too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Slow groups of one cause, and the ranks it sits with: none where nothing tells the members apart."""

    groups: tuple[SlowGroup, ...]
    initiating: tuple[int, ...]

    @property
    def past(self) -> bool:
        """Whether all are slow compared with their own past."""
        return all(group.against is Against.PAST for group in self.groups)


def parts_of(slow: Sequence[SlowGroup], fast: Sequence[FastGroups], view: RunView) -> list[Part]:
    """Slow groups that hang together, each part with the place that explains it.

    Groups of the same hosts, or near each other that became slow together, stay one part where no place explains them.
    """
    hosts = _Hosts(view)
    parts: list[Part] = []
    for near in _connected(slow, hosts.of_group):
        explained = _explained(near, fast, hosts)
        if explained.initiating:
            parts.append(explained)
            continue
        apart = [_explained(one, fast, hosts) for one in _connected(near, lambda group: group.ranks)]
        alike = explained.past or len({hosts.of_group(group) for group in near}) == 1
        together = alike and not any(one.initiating for one in apart)
        parts.extend([explained] if together else apart)
    return parts


class _Hosts:
    """Hosts by number, a rank of unknown host as a host of its own."""

    def __init__(self, view: RunView) -> None:
        names = [host or f"\0{rank}" for rank, host in enumerate(view.hosts)]
        self.of_rank: Ints = np.unique(names, return_inverse=True)[1].astype(np.int64)

    def of_group(self, group: SlowGroup) -> tuple[int, ...]:
        return tuple(sorted(set(self.of_rank[list(group.ranks)].tolist())))

    def fast_across(self, groups: FastGroups, *, past: bool) -> Ints:
        """Ranks of fast groups that cross hosts; compared with others, those of hosts that not all of them have."""
        ranks = groups.steady if past else groups.fast
        if not len(ranks):
            return ranks.ravel()
        ranks = ranks[~self._inside(ranks)].ravel()
        return ranks if past else np.asarray(ranks[~np.isin(self.of_rank[ranks], self._in_every(groups.everyone))])

    def fast_inside(self, groups: FastGroups, *, past: bool) -> Ints:
        """Ranks of fast groups that lie within one host."""
        ranks = groups.steady if past else groups.fast
        return np.asarray(ranks[self._inside(ranks)].ravel())

    def _inside(self, ranks: Ints) -> Bools:
        host = self.of_rank[ranks]
        return np.asarray((host == host[:, :1]).all(axis=1))

    def _in_every(self, groups: Ints) -> Ints:
        """Hosts that have a member in each group."""
        host = np.sort(self.of_rank[groups], axis=1)
        first = np.ones(host.shape, dtype=bool)
        first[:, 1:] = host[:, 1:] != host[:, :-1]
        hosts, counts = np.unique(host[first], return_counts=True)
        return np.asarray(hosts[counts == len(groups)])


def _connected(
    groups: Sequence[SlowGroup], places: Callable[[SlowGroup], Sequence[Hashable]]
) -> list[tuple[SlowGroup, ...]]:
    """Groups that share places, directly or by way of others."""
    parts: list[tuple[set[Hashable], list[SlowGroup]]] = []
    for group in groups:
        mine = set(places(group))
        touched = [part for part in parts if part[0] & mine]
        parts = [part for part in parts if not part[0] & mine]
        parts.append(
            (
                mine.union(*(part[0] for part in touched)),
                [*(one for part in touched for one in part[1]), group],
            )
        )
    return [tuple(members) for _, members in parts]


def _explained(groups: tuple[SlowGroup, ...], fast: Sequence[FastGroups], hosts: _Hosts) -> Part:
    unexplained = Part(groups=groups, initiating=())
    past = unexplained.past
    if len({frozenset(group.ranks) for group in groups}) == 1:
        return unexplained
    spans = {len(hosts.of_group(group)) for group in groups}
    across, inside = min(spans) > 1, max(spans) == 1
    everyone = [(one.steady if past else one.fast).ravel() for one in fast]
    by_network = [hosts.fast_across(one, past=past) for one in fast]
    cleared = np.concatenate(by_network if across else everyone)
    initiating = _one_rank(groups, cleared)
    if not initiating:
        cleared = np.concatenate([hosts.fast_inside(one, past=past) for one in fast]) if inside else cleared
        initiating = _one_host(groups, cleared, hosts)
    return Part(groups=groups, initiating=initiating)


def _one_rank(groups: Sequence[SlowGroup], cleared: Ints) -> tuple[int, ...]:
    everywhere = set.intersection(*(set(group.ranks) for group in groups))
    left = everywhere - set(cleared.tolist())
    return tuple(left) if len(left) == 1 else ()


def _one_host(groups: Sequence[SlowGroup], cleared: Ints, hosts: _Hosts) -> tuple[int, ...]:
    """The ranks of the one host that takes part in every slow group, and in no fast one."""
    everywhere = set.intersection(*(set(hosts.of_group(group)) for group in groups))
    cleared_hosts = set(hosts.of_rank[cleared].tolist())
    left = [host for host in everywhere if host not in cleared_hosts]
    if len(left) != 1:
        return ()
    slow = {rank for group in groups for rank in group.ranks if hosts.of_rank[rank] == left[0]}
    return tuple(sorted(slow))
