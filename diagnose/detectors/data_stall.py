"""data-stall: steps that wait for data, because the loader of one rank or of most ranks is slow.

    data-load of       step 40   41    42    43    44
    rank 4                  .     .     .     .     .
    rank 5                  .   =====   .   =====   ====    long, its peers' short: its loader or its host's disk
    rank 6                  .     .     .     .     .

    every rank              .   =====   .   =====   ====    long at once: the shared storage, no rank is a suspect

A loader prefetches, so loads are normally tiny, and ratios of tiny numbers mean nothing. A load is long if its excess
over the peers' median is at least 2% of a usual step *and* half of that median. Peers are the ranks of the same
pipeline stage, and also those of the same tensor-parallel index: in many jobs only the first rank of a tensor group
loads. A rank is named only if long loads repeat. If long loads are common among the other ranks, they must be more
frequent on this rank than chance explains (Poisson tail, ``MAX_CHANCE``).
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS, initiating, named, sharing_a_cause
from diagnose.findings import Finding, Kind, Suspect, severity_of
from diagnose.model.operations import Bools, Floats, Ints
from diagnose.model.peers import highest_stretch, lower_median, peer_median, robust_sigma
from diagnose.model.view import RunView
from telemetry.stages import Stage

NAME = "data-stall"
MIN_SHARE = 0.02
"""Share of a usual step that a long load must exceed, and that the stalls must cost."""
MIN_EXCESS = 0.5
"""Share of the load time of peers that the excess of a long load must reach."""
MIN_STALLS = 3
MAX_CHANCE = 1e-3
"""Probability that any rank of a job has this number of long loads by chance."""
MIN_RATE = 0.02
"""Number of long loads for each rank that counts as usual even if no other rank has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Steps with long loads: rows of the view, and the excess in nanoseconds."""

    rows: Ints
    excess_ns: Floats
    """Excess in each of ``rows``."""

    @property
    def total_ns(self) -> float:
        return float(self.excess_ns.sum())

    def share(self, view: RunView) -> float:
        """Share of the time of the window."""
        return min(1.0, self.total_ns / float(view.step_ns.sum()))

    def repeated_share(self, view: RunView) -> float:
        """Share of the time of the window, with each stall limited to the length of the third longest: one or two long
        loads do not repeat."""
        longest = np.sort(self.excess_ns)[-MIN_STALLS]
        return float(np.minimum(self.excess_ns, longest).sum()) / float(view.step_ns.sum())


def detect_data_stall(view: RunView) -> list[Finding]:
    """One finding for loads that are long on most ranks at once, and one for each rank or host with long loads."""
    if Stage.DATA_LOAD not in view.operations or len(view.steps) < MIN_STEPS:
        return []
    load_ns = view.operations[Stage.DATA_LOAD].total_ns()
    shared_ns = _shared_load(load_ns, view)
    excess_ns = load_ns - _expected_load(load_ns, shared_ns, view)
    stalls = _long_loads(load_ns, excess_ns, view)
    shared = _stalls(shared_ns >= MIN_SHARE * float(np.median(view.step_ns)), shared_ns)
    # All ranks of a role may wait for data of another role: this is role-idle.
    found = [_shared_finding(view, shared)] if _costs(shared, view) and not view.rank_numbers else []
    slow = [rank for rank in stalls if _costs(stalls[rank], view) and not _by_chance(rank, stalls, view)]
    return found + [
        _rank_finding(view, ranks, max((stalls[rank] for rank in ranks), key=lambda each: each.total_ns))
        for ranks in sharing_a_cause(view, slow)
    ]


def _shared_load(load_ns: Floats, view: RunView) -> Floats:
    """Load time of most ranks that load the same way at once, [steps]. Zero in a step in which it is not long."""
    groups = _same_place(view) if view.topology.dp > 1 else np.zeros(load_ns.shape[1], dtype=np.int64)
    known = np.where(np.isnan(load_ns), 0.0, load_ns)
    medians = np.array([lower_median(known[:, groups == group]) for group in np.unique(groups)])
    long = medians >= MIN_SHARE * float(np.median(view.step_ns))
    loading = long.sum(axis=1) >= MIN_STALLS
    if not loading.any():
        return np.zeros(len(load_ns))
    return np.where(long[loading].mean(axis=0) >= 0.5, medians[loading].max(axis=0), 0.0)


def _expected_load(load_ns: Floats, shared_ns: Floats, view: RunView) -> Floats:
    """Load time of the peers, [steps, ranks]: the longest of several estimates."""
    by_stage = peer_median(load_ns, view.pp_of_rank)
    if view.topology.dp > 1:
        same = peer_median(load_ns, _same_place(view))
    else:
        usual = [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else np.nan for column in load_ns.T]
        same = np.broadcast_to(usual, load_ns.shape)
    return np.fmax(np.fmax(by_stage, same), shared_ns[:, None])


def _same_place(view: RunView) -> Ints:
    """A number for each pair of pipeline stage and tensor-parallel index."""
    return view.topology.index["pp"] * view.topology.tp + view.topology.index["tp"]


def _long_loads(load_ns: Floats, excess_ns: Floats, view: RunView) -> dict[int, Stalls]:
    """Long loads of every rank that loads."""
    bound_ns = MIN_SHARE * float(np.median(view.step_ns))
    with np.errstate(invalid="ignore"):
        long = (excess_ns >= bound_ns) & (excess_ns >= MIN_EXCESS * (load_ns - excess_ns))
    ranks = np.flatnonzero(~np.isnan(load_ns).all(axis=0)).tolist()
    return {rank: _stalls(long[:, rank], excess_ns[:, rank]) for rank in ranks}


def _stalls(long: Bools, excess_ns: Floats) -> Stalls:
    rows = np.flatnonzero(long)
    return Stalls(rows=rows, excess_ns=excess_ns[rows])


def _costs(stalls: Stalls, view: RunView) -> bool:
    """Whether stalls repeat, and cost 2% of the window or of the stretch of steps around them."""
    if len(stalls.rows) < MIN_STALLS:
        return False
    if stalls.repeated_share(view) >= MIN_SHARE:
        return True
    bound_ns = MIN_SHARE * float(np.median(view.step_ns))
    series = np.zeros(len(view.steps))
    series[stalls.rows] = stalls.excess_ns
    stretch = series[highest_stretch(series - bound_ns).rows]
    return len(stretch) >= MIN_STEPS and float(np.median(stretch)) >= bound_ns


def _by_chance(rank: int, stalls: dict[int, Stalls], view: RunView) -> bool:
    """Whether this number of long loads is likely, given those of the other ranks."""
    others = [other for other in stalls if view.hosts[other] != view.hosts[rank]]
    if len(others) < 2:
        others = [other for other in stalls if other != rank]
    counts = np.sort([len(stalls[other].rows) for other in others])
    faulty = -(-len(counts) // 10) if len(counts) > 2 else 0  # the top tenth may be faulty as well
    usual = counts[: len(counts) - faulty]
    mean = float(np.mean(usual)) if len(usual) else 0.0
    rate = max(MIN_RATE, mean + 2.0 * (mean / max(1, len(usual))) ** 0.5)
    return len(stalls) * _poisson_tail(len(stalls[rank].rows), rate) > MAX_CHANCE


def _poisson_tail(count: int, rate: float) -> float:
    """Upper bound of the probability of ``count`` or more events if ``rate`` events are expected."""
    if count <= rate:
        return 1.0
    log_first = count * np.log(rate) - rate - float(np.sum(np.log(np.arange(1, count + 1))))
    return min(1.0, float(np.exp(log_first)) / (1.0 - rate / (count + 1)))


def _shared_finding(view: RunView, stalls: Stalls) -> Finding:
    return _finding(
        view,
        stalls,
        summary=f"data-load is slow on most ranks at the same time in {_extent(view, stalls)}. No single loader is "
        "the cause",
        next_step="check the shared storage, its cache and its network. If they are healthy, "
        "give the loaders more workers and prefetch more batches",
    )


def _rank_finding(view: RunView, ranks: list[int], worst: Stalls) -> Finding:
    hosts = ", ".join(sorted({view.hosts[rank] or "its host" for rank in ranks}))
    return _finding(
        view,
        worst,
        suspects=initiating(view, ranks),
        summary=f"{named(view, ranks)}: data-load is slower than on its peers in {_extent(view, worst)}",
        next_step=f"on {hosts}: check the loader's workers, the CPU, the local disk and the mount "
        f"(top, iostat -x 1, nfsiostat), and the data shard that it reads from step {view.steps[worst.rows[0]]} on",
    )


def _finding(
    view: RunView, stalls: Stalls, *, suspects: tuple[Suspect, ...] = (), summary: str, next_step: str
) -> Finding:
    share = stalls.share(view)
    # More certain with every stall (rule of succession), less if it is small against the noise of other steps.
    noise_ns = robust_sigma(np.delete(view.step_ns, stalls.rows), 0.0)
    typical_ns = float(np.median(stalls.excess_ns))
    repeated = len(stalls.rows) / (len(stalls.rows) + 1)
    return Finding(
        detector=NAME,
        kind=Kind.DATA_STALL,
        severity=severity_of(share),
        suspects=suspects,
        stage=Stage.DATA_LOAD.label,
        window=view.between(int(stalls.rows[0]), int(stalls.rows[-1])),
        seconds_lost=stalls.total_ns / 1e9,
        confidence=round(repeated * typical_ns / (typical_ns + noise_ns), 2),
        summary=summary,
        next_step=next_step,
        evidence={
            "stalled_steps": len(stalls.rows),
            "first_step": int(view.steps[stalls.rows[0]]),
            "median_excess_ms": round(typical_ns / 1e6, 3),
            "longest_excess_ms": round(float(stalls.excess_ns.max()) / 1e6, 3),
            "share_of_time": round(share, 4),
            "steps": [int(step) for step in view.steps[stalls.rows[:20]]],
        },
    )


def _extent(view: RunView, stalls: Stalls) -> str:
    typical_s = float(np.median(stalls.excess_ns)) / 1e9
    num_steps = len(view.steps)
    return (
        f"{len(stalls.rows)} of {num_steps} steps, first in step {view.steps[stalls.rows[0]]}. "
        f"The median delay is {typical_s:.3g} s. "
        f"Delays take {stalls.share(view):.0%} of the time of these {num_steps} steps"
    )
