"""checkpoint-slow: a rank or host that saves longer than its peers, or saves that block training or overlap.

    rank 4   |snapshot| write        |             |snapshot| write        |
    rank 5   |snapshot| write                 |    |snapshot| write                 |     slow in every checkpoint
             `-- training stalls --'  `-- in the background: no cost, unless it lasts until the next checkpoint

Peers are the ranks of the same pipeline stage. A rank is named if the log ratio of its time to their median is at least
5 standard deviations of these log ratios on the other ranks. This must hold for the median of at least two checkpoints.
A single checkpoint must take three times as long as on peers, and reach 8 deviations. If all ranks of dp0 and no others
are slow, they save the state that is stored once. This is normal.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import initiating, named, sharing_a_cause
from diagnose.findings import LEAST_COST_S, Evidence, Finding, Kind, Severity, Suspect, severity_of
from diagnose.model.operations import Floats, Ints, Operations
from diagnose.model.peers import MEDIAN_EFFICIENCY, log_ratios, peer_median, robust_sigma
from diagnose.model.view import RunView
from telemetry.stages import Stage

NAME = "checkpoint-slow"
STAGES = (Stage.CHECKPOINT_SNAPSHOT, Stage.CHECKPOINT_WRITE)
MIN_RATIO = 1.5
MIN_RATIO_ALONE = 3.0
MIN_EXCESS_NS = 0.1e9
MIN_EXCESS_ALONE_NS = 1e9
MIN_SHARE = 0.7
"""Share of its checkpoints in which a rank reaches at least half of the ratio."""
MIN_DEVIATIONS = 5.0
MIN_DEVIATIONS_ALONE = 8.0
CAUTION = 25.0
"""Widens the limit if the spread is known from few numbers."""
SPREAD_FLOOR = 0.04
MAX_BLOCKING = 0.05
MUCH_BLOCKING = 0.1
"""Snapshots that take this share of the time are a warning. From ``MAX_BLOCKING`` on they are reported. Checkpoints in
every step can take less than 0.9% (ByteRobust)."""
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowSave:
    """A rank that is slow in a stage of its checkpoints."""

    rank: int
    stage: Stage
    rows: Ints
    """Rows of the view in which the rank is in the stage."""
    ratio: float
    excess_ns: Floats
    """Excess in each of ``rows``."""
    share: float


def detect_slow_checkpoints(view: RunView) -> list[Finding]:
    """One finding for each slow rank or host, one for snapshots that block all ranks, one for saves that overlap."""
    if not len(view.steps):
        return []
    slow: dict[int, list[SlowSave]] = {}
    for stage in STAGES:
        for save in _slow_saves(stage, view):
            slow.setdefault(save.rank, []).append(save)
    found = [
        _rank_finding(view, ranks, [save for rank in ranks for save in slow[rank]])
        for ranks in sharing_a_cause(view, [*slow])
    ]
    return [*found, *_blocking(view), *_overlapping(view, sorted(slow))]


def _save_times(stage: Stage, view: RunView) -> tuple[Ints, Floats]:
    """Rows of the view with saves, and the time of each rank in them, [rows, ranks]."""
    if stage not in view.operations:
        return np.zeros(0, dtype=np.int64), np.zeros((0, len(view.hosts)))
    save_ns = view.operations[stage].total_ns()
    rows = np.flatnonzero((~np.isnan(save_ns)).any(axis=1))
    return rows, save_ns[rows]


def _slow_saves(stage: Stage, view: RunView) -> list[SlowSave]:
    rows, save_ns = _save_times(stage, view)
    if not len(rows):
        return []
    expected = peer_median(save_ns, view.pp_of_rank)
    log_ratio, excess_ns = log_ratios(save_ns, expected), save_ns - expected
    found: list[SlowSave] = []
    for rank in range(save_ns.shape[1]):
        known = ~np.isnan(log_ratio[:, rank])
        if not known.any():
            continue
        series, excess = log_ratio[known, rank], excess_ns[known, rank]
        median, share = float(np.median(series)), float(np.mean(series > np.log(MIN_RATIO) / 2))
        alone = len(series) == 1
        is_long = float(np.median(excess)) >= (MIN_EXCESS_ALONE_NS if alone else MIN_EXCESS_NS)
        is_high = median >= np.log(MIN_RATIO_ALONE if alone else MIN_RATIO) and share >= MIN_SHARE
        if is_long and is_high and median >= _least_log_ratio(rank, log_ratio[known], view):
            ratio = float(np.exp(median))
            found.append(SlowSave(rank=rank, stage=stage, rows=rows[known], ratio=ratio, excess_ns=excess, share=share))
    first_replica = sorted(view.topology.grid[0].ravel().tolist())
    save_more = len(first_replica) > 1 and view.topology.dp > 1 and [save.rank for save in found] == first_replica
    return [] if save_more else found


def _least_log_ratio(rank: int, log_ratio: Floats, view: RunView) -> float:
    """Log ratio that noise does not reach, from the spread of single saves and of the other ranks.

    Both spreads are known from few numbers, and may be too small by chance. So the limit is wider.
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


def _others(rank: int, log_ratio: Floats, view: RunView) -> Floats:
    """Columns of the ranks to compare with: those on other hosts if they are more than three. A single peer is left
    out, because its ratio only mirrors that of the rank."""
    hosts = np.array(view.hosts)
    peers = view.pp_of_rank == view.pp_of_rank[rank]
    known = np.asarray(~np.isnan(log_ratio).all(axis=0), dtype=bool)
    known[(peers if int((peers & known).sum()) == 2 else rank)] = False
    elsewhere = known & (hosts != hosts[rank])
    return log_ratio[:, elsewhere if int(elsewhere.sum()) > 3 else known]


def _rank_finding(view: RunView, ranks: list[int], slow: list[SlowSave]) -> Finding:
    worst = max(slow, key=lambda save: (save.stage is Stage.CHECKPOINT_SNAPSHOT, float(np.median(save.excess_ns))))
    blocking = [save for save in slow if save.stage is Stage.CHECKPOINT_SNAPSHOT]
    lost_ns = max((float(save.excess_ns.sum()) for save in blocking), default=0.0)
    share = min(1.0, lost_ns / float(view.step_ns.sum()))
    hosts = ", ".join(sorted({view.hosts[rank] or "its host" for rank in ranks}))
    cost = f"training is blocked {share:.0%} of the time" if blocking else "training continues meanwhile"
    by_cost = severity_of(share, least=Severity.WARNING if worst.ratio >= 2.0 else Severity.INFO)
    return _finding(
        view,
        rows=worst.rows,
        stage=worst.stage,
        severity=by_cost if blocking else Severity.INFO,
        suspects=initiating(view, ranks),
        lost_ns=lost_ns,
        share=worst.share,
        summary=f"{named(view, ranks)}: {worst.stage.label} takes {worst.ratio:.2f}x its peers' time, "
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
    """A finding if snapshots take over 5% of the time from the first to the last of them."""
    rows, save_ns = _save_times(Stage.CHECKPOINT_SNAPSHOT, view)
    if len(rows) < 2:
        return []
    typical_ns = np.nanmedian(save_ns, axis=1)
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
            lost_ns=float(typical_ns.sum()),
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


def _overlapping(view: RunView, slow: list[int]) -> list[Finding]:
    """A finding if most ranks still write a checkpoint when the next one begins, at least twice. Slow ranks do not
    count."""
    if Stage.CHECKPOINT_WRITE not in view.operations:
        return []
    late_ns = _late_ns(view)
    late_ns[:, slow] = np.nan
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
            summary=f"checkpoint-write still runs when the next checkpoint begins, on {len(ranks)} of "
            f"{view.topology.world_size} ranks, and ends {_seconds(behind_ns)} later, in {_checkpoints(view, rows)}",
            next_step="save less often, or use faster storage. Unfinished writes fill the memory and then block "
            "training.",
            evidence={
                "ranks": view.numbers(ranks[:64]),
                "num_ranks": len(ranks),
                "checkpoints": len(rows),
                "first_behind_s": round(float(behind_ns[0]) / 1e9, 3),
                "last_behind_s": round(float(behind_ns[-1]) / 1e9, 3),
            },
        )
    ]


def _late_ns(view: RunView) -> Floats:
    """How long a rank's write of this step lasts after the begin of its next checkpoint, [steps, ranks]."""
    write = view.operations[Stage.CHECKPOINT_WRITE]
    end_ns = np.where(write.present, write.end_ns, -1).max(axis=1)
    begin_ns = np.min([_begin_ns(view.operations[stage]) for stage in STAGES if stage in view.operations], axis=0)
    late_ns = np.full(end_ns.shape, np.nan)
    for rank in range(end_ns.shape[1]):
        begun = np.flatnonzero(begin_ns[:, rank] < _NEVER)
        this, following = begun[:-1], begun[1:]
        wrote = end_ns[this, rank] >= 0
        late_ns[this[wrote], rank] = (end_ns[this, rank] - begin_ns[following, rank])[wrote]
    return late_ns


def _begin_ns(operations: Operations) -> Ints:
    return np.asarray(np.where(operations.present, operations.start_ns, _NEVER).min(axis=1), dtype=np.int64)


def _finding(
    view: RunView,
    *,
    rows: Ints,
    stage: Stage,
    severity: Severity,
    suspects: tuple[Suspect, ...] = (),
    lost_ns: float = 0.0,
    share: float = 1.0,
    summary: str,
    next_step: str,
    evidence: Evidence,
) -> Finding:
    """``share``: share of the checkpoints in ``rows`` that show the problem."""
    return Finding(
        detector=NAME,
        kind=Kind.CHECKPOINT_SLOW,
        severity=severity,
        suspects=suspects,
        stage=stage.label,
        window=view.between(int(rows[0]), int(rows[-1])),
        seconds_lost=lost_ns / 1e9,
        confidence=round(share * len(rows) / (len(rows) + 1), 2),
        summary=summary,
        next_step=next_step,
        evidence=evidence,
    )


def _checkpoints(view: RunView, rows: Ints) -> str:
    if len(rows) == 1:
        return f"the checkpoint of step {view.steps[rows[0]]}"
    return f"{len(rows)} checkpoints since step {view.steps[rows[0]]}"


def _seconds(ns: Floats) -> str:
    return f"{float(np.median(ns)) / 1e9:.3g} s"
