"""checkpoint-slow: a rank or host that saves longer than its peers, saves that hold training up, or that overlap.

    rank 4   |snapshot| write        |             |snapshot| write        |
    rank 5   |snapshot| write                 |    |snapshot| write                 |     slow in every checkpoint
             `-- training stands --'  `-- in the background: costs nothing, unless the next one begins before its end

Peers are the ranks of equal pipeline stage. A rank is named when its log ratio to their median is far from the spread
among the other ranks, in the middle of at least two checkpoints; a single checkpoint must show three times its peers'
time, and a distance that hardly depends on luck. The ranks of dp0 that are all slower than the rest hold more: the
state that is kept once; they are not sick.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.detectors.evidence import initiating, named, sharing_a_cause
from diagnose.findings import LEAST_COST_S, Evidence, Finding, Kind, Severity, StepWindow, Suspect
from diagnose.model.operations import Operations
from diagnose.model.peers import MEDIAN_EFFICIENCY, peer_median, robust_sigma
from diagnose.model.view import FloatMatrix, FloatVector, IntVector, RunView
from telemetry.stages import Stage

NAME = "checkpoint-slow"
STAGES = (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE)
MIN_RATIO = 1.5
MIN_RATIO_ALONE = 3.0
MIN_EXCESS_NS = 0.1e9
MIN_EXCESS_ALONE_NS = 1e9
MIN_SHARE = 0.7
"""Of its checkpoints in which a rank is half way to the ratio or beyond."""
MIN_DEVIATIONS = 5.0
MIN_DEVIATIONS_ALONE = 8.0
CAUTION = 25.0
"""How much more is asked where a spread is known from few numbers."""
SPREAD_FLOOR = 0.04
MAX_BLOCKING = 0.05
MUCH_BLOCKING = 0.1
"""Share of the time that snapshots may take; every-step checkpoints have been kept below 0.9% (ByteRobust)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSave:
    """A rank that is slow in a stage of its checkpoints."""

    rank: int
    stage: Stage
    rows: IntVector
    """Of the view, in which the rank is in the stage."""
    ratio: float
    excess_ns: FloatVector
    """Beside ``rows``."""
    share: float


def detect_slow_checkpoints(view: RunView) -> list[Finding]:
    """One finding for each slow rank or host, one for snapshots that hold everybody up, one for saves that overlap."""
    if not len(view.steps):
        return []
    slow: dict[int, list[SlowSave]] = {}
    for stage in STAGES:
        for one in _slow_ranks(stage, view):
            slow.setdefault(one.rank, []).append(one)
    found = [
        _rank_finding(view, ranks, [one for rank in ranks for one in slow[rank]])
        for ranks in sharing_a_cause(view, [*slow])
    ]
    return [*found, *_blocking(view), *_overlapping(view, set(slow))]


def _slow_ranks(stage: Stage, view: RunView) -> list[SlowSave]:
    if stage not in view.operations:
        return []
    save_ns = view.operations[stage].total_ns()
    rows = np.flatnonzero((~np.isnan(save_ns)).any(axis=1))
    save_ns = save_ns[rows]
    expected = peer_median(save_ns, view.pp_of_rank)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(save_ns / expected)
    log_ratio[~np.isfinite(log_ratio)] = np.nan
    slow = [_slow_save(stage, rank, rows, log_ratio, save_ns - expected, view) for rank in range(save_ns.shape[1])]
    found = [one for one in slow if one is not None]
    return [] if _hold_more([one.rank for one in found], view) else found


def _hold_more(ranks: list[int], view: RunView) -> bool:
    """The ranks of dp0 and no other: they write what all replicas share."""
    first = sorted(view.topology.grid[0].ravel().tolist())
    return len(first) > 1 and view.topology.dp > 1 and ranks == first


def _slow_save(
    stage: Stage, rank: int, rows: IntVector, log_ratio: FloatMatrix, excess_ns: FloatMatrix, view: RunView
) -> SlowSave | None:
    known = ~np.isnan(log_ratio[:, rank])
    if not known.any():
        return None
    series, excess = log_ratio[known, rank], excess_ns[known, rank]
    alone = len(series) == 1
    if float(np.median(excess)) < (MIN_EXCESS_ALONE_NS if alone else MIN_EXCESS_NS):
        return None
    median, share = float(np.median(series)), float(np.mean(series > np.log(MIN_RATIO) / 2))
    if median < np.log(MIN_RATIO_ALONE if alone else MIN_RATIO) or share < MIN_SHARE:
        return None
    if median < _needed(rank, log_ratio[known], view):
        return None
    return SlowSave(
        rank=rank, stage=stage, rows=rows[known], ratio=float(np.exp(median)), excess_ns=excess, share=share
    )


def _needed(rank: int, log_ratio: FloatMatrix, view: RunView) -> float:
    """Log ratio that noise does not reach: from the spread of single saves, and of ranks, that nobody suspects.

    Both are known from few numbers, and a spread from few numbers is too small now and then: more is asked.
    """
    others = _others(rank, log_ratio, view)
    if not others.size:
        return np.inf
    cells = others[~np.isnan(others)]
    error = MEDIAN_EFFICIENCY / len(log_ratio) ** 0.5
    by_cells = error * robust_sigma(cells, SPREAD_FLOOR)
    by_ranks = robust_sigma(np.nanmedian(others, axis=0), SPREAD_FLOOR)
    deviations = MIN_DEVIATIONS_ALONE if len(log_ratio) == 1 else MIN_DEVIATIONS
    return float(deviations * (1.0 + CAUTION / max(1, len(cells) - 1) ** 2) * max(by_cells, by_ranks))


def _others(rank: int, log_ratio: FloatMatrix, view: RunView) -> FloatMatrix:
    """Columns of ranks that this one is held against: of other hosts if there are some, never its mirror image."""
    hosts = np.array(view.hosts)
    peers = view.pp_of_rank == view.pp_of_rank[rank]
    known = np.asarray(~np.isnan(log_ratio).all(axis=0), dtype=bool)
    known[(peers if int((peers & known).sum()) == 2 else rank)] = False
    elsewhere = known & (hosts != hosts[rank])
    return log_ratio[:, elsewhere if int(elsewhere.sum()) > 3 else known]


def _rank_finding(view: RunView, ranks: list[int], slow: list[SlowSave]) -> Finding:
    worst = max(slow, key=lambda one: (one.stage is Stage.CHECKPOINT_SNAPSHOT, float(np.median(one.excess_ns))))
    blocking = [one for one in slow if one.stage is Stage.CHECKPOINT_SNAPSHOT]
    lost_ns = max((float(one.excess_ns.sum()) for one in blocking), default=0.0)
    share = min(1.0, lost_ns / float(view.step_ns.sum()))
    hosts = ", ".join(sorted({view.hosts[rank] or "its host" for rank in ranks}))
    cost = f"training is blocked {share:.0%} of the time" if blocking else "training continues meanwhile"
    return _finding(
        view,
        rows=worst.rows,
        stage=worst.stage,
        severity=_severity(share, worst.ratio) if blocking else Severity.INFO,
        suspects=initiating(view, ranks),
        lost_ns=lost_ns,
        confidence=round(worst.share * len(worst.rows) / (len(worst.rows) + 1), 2),
        summary=f"{named(view, ranks)}: {worst.stage.label} takes {worst.ratio:.2f}x its peers', "
        f"{_seconds(worst.excess_ns)} more, in {_checkpoints(view, worst.rows)}; {cost}",
        next_step=f"on {hosts}: check the disk or mount for checkpoints, free memory and other writers "
        "(iostat -x 1, nfsiostat, free). Compare the bytes written with those of its peers.",
        evidence={
            "ratio": round(worst.ratio, 3),
            "checkpoints": len(worst.rows),
            "share_of_checkpoints": round(worst.share, 3),
            "median_excess_s": round(float(np.median(worst.excess_ns)) / 1e9, 3),
            "share_of_time": round(share, 4),
        },
    )


def _blocking(view: RunView) -> list[Finding]:
    """Snapshots that take over 5% of the time from the first of them to the last."""
    if Stage.CHECKPOINT_SNAPSHOT not in view.operations:
        return []
    save_ns = view.operations[Stage.CHECKPOINT_SNAPSHOT].total_ns()
    rows = np.flatnonzero((~np.isnan(save_ns)).any(axis=1))
    if len(rows) < 2:
        return []
    typical_ns = np.nanmedian(save_ns[rows], axis=1)
    share = min(1.0, float(typical_ns[:-1].sum() / view.step_ns[rows[0] : rows[-1]].sum()))
    if share <= MAX_BLOCKING or typical_ns.sum() < LEAST_COST_S * 1e9:
        return []
    every = round(float(np.median(np.diff(view.steps[rows]))))
    return [
        _finding(
            view,
            rows=rows,
            stage=Stage.CHECKPOINT_SNAPSHOT,
            severity=Severity.WARNING if share >= MUCH_BLOCKING else Severity.INFO,
            suspects=(),
            lost_ns=float(typical_ns.sum()),
            confidence=round(len(rows) / (len(rows) + 1), 2),
            summary=f"checkpoint-snapshot blocks training {share:.0%} of the time on every rank: "
            f"{_seconds(typical_ns)} in {_checkpoints(view, rows)}, one every {every} steps",
            next_step="save less often, or copy to pinned host memory and write to disk in the background",
            evidence={
                "share_of_time": round(share, 4),
                "checkpoints": len(rows),
                "median_snapshot_s": round(float(np.median(typical_ns)) / 1e9, 3),
                "steps_between": every,
            },
        )
    ]


def _overlapping(view: RunView, accused: set[int]) -> list[Finding]:
    """At least two checkpoints that most ranks still write when their next begins; those accused are left out."""
    if Stage.CHECKPOINT_WRITE not in view.operations:
        return []
    late_ns = _late_ns(view)
    late_ns[:, sorted(accused)] = np.nan
    late = np.nan_to_num(late_ns) > 0
    rows = np.flatnonzero(2 * late.sum(axis=1) > (~np.isnan(late_ns)).sum(axis=1))
    if len(rows) < 2:
        return []
    ranks = np.flatnonzero(late[rows].any(axis=0)).tolist()
    behind_ns = np.nanmax(late_ns[rows], axis=1)
    return [
        _finding(
            view,
            rows=rows,
            stage=Stage.CHECKPOINT_WRITE,
            severity=Severity.WARNING if len(rows) > 2 else Severity.INFO,
            suspects=(),
            lost_ns=0.0,
            confidence=round(len(rows) / (len(rows) + 1), 2),
            summary=f"checkpoint-write still runs when the next checkpoint begins, on {len(ranks)} of "
            f"{view.topology.world_size} ranks, by {_seconds(behind_ns)}, in {_checkpoints(view, rows)}",
            next_step="save less often, or use faster storage. Unfinished writes fill the memory and then block "
            "training.",
            evidence={
                "ranks": ranks[:64],
                "num_ranks": len(ranks),
                "checkpoints": len(rows),
                "first_behind_s": round(float(behind_ns[0]) / 1e9, 3),
                "last_behind_s": round(float(behind_ns[-1]) / 1e9, 3),
            },
        )
    ]


def _late_ns(view: RunView) -> FloatMatrix:
    """By how much a rank's write, begun in this step, outlasts the begin of its next checkpoint, [steps, ranks]."""
    write = view.operations[Stage.CHECKPOINT_WRITE]
    end_ns = np.where(write.present, write.end_ns, -1).max(axis=1)
    begins = [_begin_ns(view.operations[stage]) for stage in STAGES if stage in view.operations]
    begin_ns = np.min(begins, axis=0)
    late_ns = np.full(end_ns.shape, np.nan)
    for rank in range(end_ns.shape[1]):
        begun = np.flatnonzero(begin_ns[:, rank] < _NEVER)
        this, following = begun[:-1], begun[1:]
        wrote = end_ns[this, rank] >= 0
        late_ns[this[wrote], rank] = (end_ns[this, rank] - begin_ns[following, rank])[wrote]
    return late_ns


_NEVER = np.iinfo(np.int64).max


def _begin_ns(operations: Operations) -> npt.NDArray[np.int64]:
    return np.asarray(np.where(operations.present, operations.start_ns, _NEVER).min(axis=1), dtype=np.int64)


def _severity(share: float, ratio: float) -> Severity:
    if share >= 0.2:
        return Severity.CRITICAL
    return Severity.WARNING if share >= 0.05 or ratio >= 2.0 else Severity.INFO


def _finding(
    view: RunView,
    *,
    rows: IntVector,
    stage: Stage,
    severity: Severity,
    suspects: tuple[Suspect, ...],
    lost_ns: float,
    confidence: float,
    summary: str,
    next_step: str,
    evidence: Evidence,
) -> Finding:
    return Finding(
        detector=NAME,
        kind=Kind.CHECKPOINT_SLOW,
        severity=severity,
        suspects=suspects,
        stage=stage.label,
        window=StepWindow(first_step=int(view.steps[rows[0]]), last_step=int(view.steps[rows[-1]])),
        seconds_lost=lost_ns / 1e9,
        confidence=confidence,
        summary=summary,
        next_step=next_step,
        evidence=evidence,
    )


def _checkpoints(view: RunView, rows: IntVector) -> str:
    if len(rows) == 1:
        return f"the checkpoint of step {view.steps[rows[0]]}"
    return f"{len(rows)} checkpoints since step {view.steps[rows[0]]}"


def _seconds(ns: FloatVector) -> str:
    return f"{float(np.median(ns)) / 1e9:.3g} s"
