"""The rank or host that explains slow groups: the only one in every slow group and in no fast group.

    slow   {1, 5}  {5, 7}         rank 1 is in the fast {1, 3}, rank 7 in the fast {3, 7}: rank 5 remains
    fast   {1, 3}  {3, 7}  ...

It is a rank if one rank explains all slow groups, otherwise a host. Collectives inside a host do not use its network
card. So if all slow groups cross hosts, only fast groups that cross hosts exclude a suspect. If all slow groups are
inside hosts, only fast groups inside hosts do. If there are both kinds of slow groups, both kinds of fast groups do. A
host that is in every group of a kind is not excluded: all these groups would be slow together.

Groups that became slow and stay slow are compared with their own past, all groups of a kind together:

    dp group {0, 4}  |==| |==| |==| |=====| |=====| |=====|      slow from the fourth step on
    dp group {1, 5}  |==| |==| |==| |=====| |=====| |=====|      the typical group of the same kind as well
    compute          |---| |---| |---| |---| |---| |---|         not slower: the machine is not busier
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
    """A rise from one row to the end."""

    row: int
    ratio: float
    """Factor by which the groups are slower, without the slowdown of compute."""
    share: float
    """Share of rows that are high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rises:
    """Rises of the groups of one stage, by column."""

    slow: dict[int, Rise]
    """Groups that became slow together with their kind."""
    moved: set[int]
    """The groups in ``slow``, and all others that became slower: in a continuing decline, some become slow later."""


def find_rises(collectives: Collectives, total_ns: Floats, view: RunView) -> Rises:
    """The groups that became slow, and when the groups of each kind did so."""
    found: dict[int, Rise] = {}
    moved: set[int] = set()
    pace = _pace_of_compute(view)
    for alike in np.unique(collectives.alike):
        columns = np.flatnonzero(collectives.alike == alike)
        typical = medians(total_ns[:, columns], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = _jump(np.log(typical), pace)
        row = len(total_ns) // 2 if rise is None else rise.row
        own = dict(zip(columns.tolist(), _rose(total_ns[:, columns], row).tolist(), strict=True))
        if rise is not None:
            found.update({column: rise for column, ratio in own.items() if ratio >= np.sqrt(rise.ratio)})
        moved.update(found, (column for column, ratio in own.items() if ratio >= MIN_RATIO))
    return Rises(slow=found, moved=moved)


def _rose(total_ns: Floats, row: int) -> Floats:
    """Factor by which each group is slower from ``row`` on. 0 if one side has no collective."""
    before, after = (medians(part, axis=0) for part in (total_ns[:row], total_ns[row:]))
    known = (before > 0) & (after > 0)
    return np.divide(after, before, out=np.zeros(before.shape), where=known)


def _pace_of_compute(view: RunView) -> Floats:
    """Log wall time of compute on a typical rank, [steps]. A busier machine slows compute as well as transfers."""
    compute = [view.operations[stage].total_ns() for stage in view.work if stage in view.operations]
    if not compute:
        return np.zeros(len(view.steps))
    return np.log(np.maximum(medians(np.sum(compute, axis=0), axis=1), 1.0))


def _jump(series: Floats, pace: Floats) -> Rise | None:
    """The rise of ``series`` (logs) above what ``pace`` explains. None if it is not clear, or does not last."""
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
    """Excess for each step, median over the stretch."""
    against: Against


@dataclass(frozen=True, slots=True, kw_only=True)
class FastGroups:
    """Groups of one kind in one stage. Each array: [groups, members], global ranks."""

    unmoved: Ints
    """Steady groups that did not become slower at all."""
    steady: Ints
    """Groups that did not become slow within the window."""
    fast: Ints
    """Groups as fast as the rest."""
    everyone: Ints
    """All groups, also the slow ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Slow groups with one cause, and its ranks. No ranks if the groups do not show them."""

    groups: tuple[SlowGroup, ...]
    initiating: tuple[int, ...]

    @property
    def past(self) -> bool:
        """Whether all are slow compared with their own past."""
        return all(group.against is Against.PAST for group in self.groups)


def parts_of(slow: Sequence[SlowGroup], fast: Sequence[FastGroups], view: RunView) -> list[Part]:
    """Connected slow groups, each part with the rank or host that explains it.

    One host is one part. Groups of the same hosts, or connected groups that became slow together, remain one part
    without an explanation.
    """
    hosts = _Hosts(view)
    return [part for near in _connected(slow, hosts.of_group) for part in _parts(near, fast, hosts)]


def _parts(near: tuple[SlowGroup, ...], fast: Sequence[FastGroups], hosts: "_Hosts") -> list[Part]:
    """Parts of slow groups that share hosts, directly or through other groups."""
    whole = _explained(near, fast, hosts)
    if whole.initiating:
        return [whole]
    apart = [_explained(groups, fast, hosts) for groups in _connected(near, lambda group: group.ranks)]
    named = _one_of_each_host(apart, hosts)
    if whole.past and not named:
        return [whole]
    rest = [group for part in apart if not part.initiating for group in part.groups]
    together = _connected(rest, lambda group: (*group.ranks, hosts.of_group(group)))
    return named + [part for groups in together for part in _several_hosts(groups, fast, hosts)]


def _one_of_each_host(parts: Sequence[Part], hosts: "_Hosts") -> list[Part]:
    """Parts with an explanation, those of the same host as one part."""
    of_host: dict[int, list[Part]] = {}
    for part in parts:
        if part.initiating:
            of_host.setdefault(int(hosts.of_rank[part.initiating[0]]), []).append(part)
    return [
        Part(
            groups=tuple(group for part in same for group in part.groups),
            initiating=tuple(sorted({rank for part in same for rank in part.initiating})),
        )
        for same in of_host.values()
    ]


def _several_hosts(groups: tuple[SlowGroup, ...], fast: Sequence[FastGroups], hosts: "_Hosts") -> list[Part]:
    """Parts with one host as their cause, then parts of the other groups.

    A host is a cause if it is the only suspect of a slow group and has slow groups with different hosts.

        host 0 |==| host 1 |==| host 2 |==| host 3 |==| host 4 |--| host 5      |==| slow between two hosts, |--| fast

    Host 4 is no suspect, so host 3 is one cause. Host 1 explains the groups without host 3.
    """
    cleared = set(hosts.of_rank[_fast_ranks(groups, fast, hosts)].tolist())
    placed = [(group, hosts.of_group(group)) for group in groups]
    suspects = [set(places) - cleared for _, places in placed]
    parts, rest = list[Part](), placed
    for host in sorted(set[int]().union(*(only for only in suspects if len(only) == 1))):
        if len({places for _, places in placed if host in places}) > 1:
            parts.append(hosts.part(tuple(group for group, places in placed if host in places), host))
            rest = [(group, places) for group, places in rest if host not in places]
    if not parts:
        return [Part(groups=groups, initiating=())]
    others = _connected([group for group, _ in rest], hosts.of_group)
    return parts + [part for near in others for part in _parts(near, fast, hosts)]


class _Hosts:
    """Hosts by number. A rank without a known host counts as a separate host."""

    def __init__(self, view: RunView) -> None:
        names = [host or f"\0{rank}" for rank, host in enumerate(view.hosts)]
        self.of_rank: Ints = np.unique(names, return_inverse=True)[1].astype(np.int64)

    def of_group(self, group: SlowGroup) -> tuple[int, ...]:
        return tuple(sorted(set(self.of_rank[list(group.ranks)].tolist())))

    def fast_across(self, groups: FastGroups, *, past: bool) -> Ints:
        """Ranks of fast groups that cross hosts, without the hosts that are in every group."""
        ranks = groups.steady if past else groups.fast
        if not len(ranks):
            return ranks.ravel()
        ranks = ranks[~self._inside(ranks)].ravel()
        return ranks if past else np.asarray(ranks[~np.isin(self.of_rank[ranks], self._in_every(groups.everyone))])

    def fast_inside(self, groups: FastGroups, *, past: bool) -> Ints:
        """Ranks of fast groups within one host."""
        ranks = groups.steady if past else groups.fast
        return np.asarray(ranks[self._inside(ranks)].ravel())

    def part(self, groups: tuple[SlowGroup, ...], host: int) -> Part:
        """The groups as one part with ``host`` as their cause. Initiating are the ranks of the host in these groups."""
        members = {rank for group in groups for rank in group.ranks if self.of_rank[rank] == host}
        return Part(groups=groups, initiating=tuple(sorted(members)))

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
    """Groups that share places, directly or through other groups."""
    parts: list[tuple[set[Hashable], list[SlowGroup]]] = []
    for group in groups:
        of_group = set(places(group))
        touched = [part for part in parts if part[0] & of_group]
        parts = [part for part in parts if not part[0] & of_group]
        members = [*(member for part in touched for member in part[1]), group]
        parts.append((of_group.union(*(part[0] for part in touched)), members))
    return [tuple(members) for _, members in parts]


def _explained(groups: tuple[SlowGroup, ...], fast: Sequence[FastGroups], hosts: _Hosts) -> Part:
    unexplained = Part(groups=groups, initiating=())
    if len({frozenset(group.ranks) for group in groups}) == 1:
        return unexplained
    past, across = unexplained.past, all(len(hosts.of_group(group)) > 1 for group in groups)
    cleared = _fast_ranks(groups, fast, hosts)
    cleared_ranks = (
        cleared if across else np.concatenate([(each.steady if past else each.fast).ravel() for each in fast])
    )
    ranks = set.intersection(*(set(group.ranks) for group in groups)) - set(cleared_ranks.tolist())
    if len(ranks) == 1:
        return Part(groups=groups, initiating=tuple(ranks))
    in_all = set.intersection(*(set(hosts.of_group(group)) for group in groups))
    left = in_all - set(hosts.of_rank[cleared].tolist())
    return hosts.part(groups, *left) if len(left) == 1 else unexplained


def _fast_ranks(groups: Sequence[SlowGroup], fast: Sequence[FastGroups], hosts: _Hosts) -> Ints:
    """Ranks whose hosts are no suspects: those of fast groups of the same kind, inside hosts or between hosts."""
    past = all(group.against is Against.PAST for group in groups)
    spans = {len(hosts.of_group(group)) for group in groups}
    across = [hosts.fast_across(each, past=past) for each in fast if max(spans) > 1]
    inside = [hosts.fast_inside(each, past=past) for each in fast if min(spans) == 1]
    return np.concatenate([*across, *inside])
