"""unlike-host: a host whose metrics differ from those of all hosts with the same work, for minutes.

    host 0   ~~~~~~~~~~~~~~~~~~~~~~~       Windows of 8 samples: distance of each host from the median of the others
    host 1   ~~~~~~~~~~~~~~~~~~~~~~~       (root mean square). A host is unlike the others if its distance is 5
    host 2   ~~~~~~~~.______________       times theirs for four minutes, and no other host is near it. Either
    host 3   ~~~~~~~~~~~~~~~~~~~~~~~       this began in that time, or the difference is very large.

The method follows Minder (NSDI'25): one metric at a time, in order of sensitivity, without a trained model and without
spans. So it also works while the trainer sends no records. Minder sums distances between all pairs. The
distance to the median shows the same in linear time, and does not saturate with few hosts. Series are smoothed; Minder
learns this. Only hosts with ranks of the same pipeline stages are compared. While steps continue, a host is named only
if it became unlike when they became slower: a difference alone is no fault.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.change_points import find_rise
from diagnose.detectors.evidence import initiating
from diagnose.detectors.host_grid import FEATURES, Feature, Grid, grid_of, on_grid, rms_over_windows, smoothed
from diagnose.findings import Finding, Kind, Severity
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import SMALL_GROUP, Stretch, highest_stretch, medians
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks

NAME = "unlike-host"
PERSIST_S = 240.0
"""How long a difference must last, in seconds. Minder uses the same value."""
MIN_HOSTS = 4
WINDOW = 8
"""Number of samples of a window."""
MAX_WINDOWS = 300
"""Largest number of windows. With more samples, windows overlap less."""
SMOOTHED = 4
"""Number of samples of a moving mean."""
SPAN = WINDOW + SMOOTHED - 1
"""Number of samples of one window with its moving means."""
MIN_TIMES = 5.0
"""Least distance of a host that is unlike, as a multiple of the typical distance of the others."""
MIN_TIMES_EVER, MIN_LEAD_EVER, MIN_FACTOR_EVER = 8.0, 4.0, 4.0
"""Stricter limits for a host that was unlike from the first sample on, and the least ratio to the others: machines
differ, and this is no fault."""
ALIKE_BEFORE = 0.5
"""Largest distance before, as share of the distance while it is unlike."""
MIN_LEAD = 2.0
"""Least distance of a host that is unlike, as a multiple of the second largest distance."""
MIN_SHARE = 0.8
"""Least share of windows in which a host is unlike the others."""
STILL_S = 60.0
STILL_STEPS = 5.0
"""A job is stalled if it finished no step for this time, and for this number of steps, while its hosts send samples."""
BEFORE_S = 120.0
"""A cause may show this long before steps become slower."""
MAX_CONFIDENCE = 0.7
"""Limit of the confidence: the difference need not be the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """A host that is unlike the others in one metric."""

    host: str
    feature: Feature
    first_ns: int
    last_ns: int
    own: float
    others: float
    times: float
    """Distance from the others, in units of their distance from each other."""
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A problem of the job that a difference may explain, and since when it exists."""

    first_ns: int
    lost_s: float
    text: str


def detect_unlike_host(view: RunView, *, persist_s: float = PERSIST_S) -> list[Finding]:
    """At most one finding: the first metric in which a host is unlike the others, and its other such metrics."""
    groups = _groups(view)
    trouble = _trouble(view)
    if not groups or trouble is None or not view.fleet.series:
        return []
    grid = grid_of(view.fleet, [host for group in groups for host in group], [feature.metric for feature in FEATURES])
    if grid is None or grid.num_columns <= SPAN:
        return []
    found = [unlike for unlike in _all_unlike(view, grid, groups, persist_s) if _may_explain(unlike, trouble, grid)]
    if not found:
        return []
    return [_finding(view, found[0], trouble, [unlike for unlike in found[1:] if unlike.host == found[0].host])]


def _groups(view: RunView) -> list[list[str]]:
    """Groups of four or more hosts with the same number of ranks of the same pipeline stages."""
    ranks: dict[str, list[int]] = {}
    for host, stage in zip(view.hosts, view.pp_of_rank.tolist(), strict=True):
        ranks.setdefault(host, []).append(stage)
    alike: dict[tuple[int, ...], list[str]] = {}
    for host, stages in ranks.items():
        if host:
            alike.setdefault(tuple(sorted(stages)), []).append(host)
    return [group for group in alike.values() if len(group) >= MIN_HOSTS]


def _trouble(view: RunView) -> Trouble | None:
    """The current problem of the job: a stall or slower steps. None if steps continue as usual."""
    if not len(view.steps):
        return Trouble(first_ns=0, lost_s=0.0, text="the ranks send no records")
    if view.step_start_ns is None:
        return None
    usual_ns = float(np.median(view.step_ns))
    ended_ns = int(view.step_start_ns[-1] + view.step_ns[-1])
    if view.fleet.seen_ns - ended_ns > max(STILL_S * 1e9, STILL_STEPS * usual_ns):
        still_s = (view.fleet.seen_ns - ended_ns) / 1e9
        return Trouble(first_ns=ended_ns, lost_s=still_s, text=f"no step has finished for {still_s:.0f} s")
    return _slower(view, view.step_start_ns)


def _slower(view: RunView, start_ns: Ints) -> Trouble | None:
    """The problem that steps became slower and are still slow, or None."""
    values = view.history.values if len(view.history.steps) else view.step_ns
    steps = view.history.steps if len(view.history.steps) else view.steps
    steps, values = steps[values > 0], values[values > 0]
    rise = find_rise(values)
    if rise is None or rise.end < len(values):
        return None
    slow = np.flatnonzero(view.steps >= steps[rise.first])
    if not len(slow):
        return None
    lost_s = (rise.after_ns - rise.before_ns) * len(slow) / 1e9
    text = f"steps take {rise.ratio:.2f}x as long since step {steps[rise.first]}"
    began_ns = int(start_ns[slow[0]]) if len(slow) < len(view.steps) else 0
    return Trouble(first_ns=began_ns, lost_s=lost_s, text=text)


def _may_explain(unlike: Unlike, trouble: Trouble, grid: Grid) -> bool:
    """Whether the host is unlike until now, and not since long before the trouble, if samples are that old."""
    until_now = unlike.last_ns >= grid.at_ns(grid.num_columns - 1) - SPAN * grid.period_ns
    return until_now and (trouble.first_ns <= grid.first_ns or unlike.first_ns >= trouble.first_ns - BEFORE_S * 1e9)


def _all_unlike(view: RunView, grid: Grid, groups: list[list[str]], persist_s: float) -> Iterator[Unlike]:
    rows = {host: row for row, host in enumerate(grid.hosts)}
    for feature in FEATURES:
        series = view.fleet.of(feature.metric)
        if len({each.host for each in series}) < MIN_HOSTS:
            continue
        values = on_grid(grid, series, counter=feature.counter, of_devices=feature.of_devices)
        for group in groups:
            members = [rows[host] for host in group if host in rows]
            if len(members) >= MIN_HOSTS:
                yield from _unlike(grid, np.asarray(members), values[members], feature, persist_s)


def _unlike(grid: Grid, members: Ints, values: Floats, feature: Feature, persist_s: float) -> Iterator[Unlike]:
    """The host of a group that is unlike the others for at least ``persist_s``, if any."""
    expected = _expected(values)
    every = -(-grid.num_columns // MAX_WINDOWS)
    difference = smoothed(values - expected, SMOOTHED)
    distance = rms_over_windows(difference, WINDOW, every)
    level = np.abs(expected[:, SPAN - 1 :: every])
    least = np.maximum(feature.least, feature.least_share * level)
    far = _far(distance)
    is_unlike = (distance == far.first) & (distance >= least) & far.apart
    host = int(is_unlike.sum(axis=1).argmax())
    stretch = highest_stretch(is_unlike[host] - MIN_SHARE)
    hits = is_unlike[host][stretch.rows]
    if not hits.any() or (stretch.length - 1) * every * grid.period_ns < persist_s * 1e9:
        return
    own, floor = distance[host], least[host] / MIN_TIMES
    times, lead = (
        float(np.median((own / np.maximum(of, floor))[stretch.rows][hits])) for of in (far.typical, far.second)
    )
    columns = slice(stretch.first * every, stretch.last * every + SPAN)
    has, have = (float(np.nanmedian(of[host, columns])) for of in (values, expected))
    by_far = times >= MIN_TIMES_EVER and lead >= MIN_LEAD_EVER and _is_far(has, have)
    if not by_far and not _became(own, stretch):
        return
    yield Unlike(
        host=grid.hosts[members[host]],
        feature=feature,
        first_ns=grid.at_ns(columns.start),
        last_ns=grid.at_ns(columns.stop - 1),
        own=has,
        others=have,
        times=times,
        share=float(hits.mean()),
    )


def _became(distance: Floats, stretch: Stretch) -> bool:
    """Whether the host was like the others before the stretch."""
    before = distance[: stretch.first]
    before = before[~np.isnan(before)]
    return len(before) > WINDOW and bool(np.median(before) <= ALIKE_BEFORE * np.nanmedian(distance[stretch.rows]))


def _is_far(own: float, others: float) -> bool:
    return max(own, others) >= MIN_FACTOR_EVER * max(0.0, min(own, others))


@dataclass(frozen=True, slots=True, kw_only=True)
class Far:
    """For each window: the two largest distances, the typical one, and whether the largest is far enough from both
    (``MIN_TIMES``, ``MIN_LEAD``)."""

    first: Floats
    second: Floats
    typical: Floats
    apart: Bools


def _far(distance: Floats) -> Far:
    """The largest and the typical distances of each window. Hosts without samples have distance 0."""
    known = ~np.isnan(distance)
    count = len(distance)
    middle = (count - 1) // 2
    ordered = np.partition(np.where(known, distance, 0.0), (middle, count - 2, count - 1), axis=0)
    first, second, typical = ordered[-1], ordered[-2], ordered[middle]
    apart = (first >= MIN_TIMES * typical) & (first >= MIN_LEAD * second) & (known.sum(axis=0) >= MIN_HOSTS)
    return Far(first=first, second=second, typical=typical, apart=apart)


def _expected(values: Floats) -> Floats:
    """Median of the other hosts at each time. Of all hosts if more than ``SMALL_GROUP`` hosts have samples."""
    known = ~np.isnan(values).all(axis=1)
    expected = np.full(values.shape, np.nan)
    if not known.any():
        return expected
    if known.sum() <= SMALL_GROUP:
        for row in np.flatnonzero(known):
            expected[row] = medians(np.delete(values, row, axis=0), axis=0)
        return expected
    expected[:] = medians(values[known], axis=0)
    return expected


def _finding(view: RunView, first: Unlike, trouble: Trouble, also: list[Unlike]) -> Finding:
    ranks = [rank for rank, host in enumerate(view.hosts) if host == first.host]
    since = time.strftime("%H:%M:%S UTC", time.gmtime(first.first_ns // 1_000_000_000))
    more = f"; also {', '.join(str(other.feature.metric) for other in also)}" if also else ""
    return Finding(
        detector=NAME,
        kind=Kind.UNLIKE_HOST,
        severity=Severity.WARNING,
        suspects=initiating(view, ranks),
        window=view.window,
        seconds_lost=trouble.lost_s,
        confidence=round(MAX_CONFIDENCE * first.share, 2),
        summary=f"host {first.host} (ranks {fold_ranks(view.numbers(ranks))}): differs from the hosts with the same "
        f"work since {since}: {first.feature.metric} {first.own:.4g} against {first.others:.4g} {first.feature.unit}"
        f"{more}; {trouble.text}",
        next_step=f"check what changed on {first.host} at {since}. After draining it, run: rankscope doctor --node",
        evidence={
            "metric": str(first.feature.metric),
            "own": float(f"{first.own:.5g}"),
            "others": float(f"{first.others:.5g}"),
            "times_the_usual_distance": round(first.times, 1),
            "since_ns": first.first_ns,
            "lasts_s": round((first.last_ns - first.first_ns) / 1e9),
            "share_of_windows": round(first.share, 2),
            "metrics": [str(other.feature.metric) for other in (first, *also)],
        },
    )
