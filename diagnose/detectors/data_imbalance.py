"""data-imbalance: microbatches of unequal length, so that some replicas work while others wait.

    dp0   |fwd 0|fwd 1 |     |bwd 0|bwd 1 |..............|    A long microbatch is long in forward and backward, and on
    dp1   |fwd 0|  fwd 1   |     |bwd 0|     bwd 1       |    every pipeline rank.

Forward and backward compute of the same microbatch are correlated over microbatches (0.9 or more: What-if analysis,
OSDI'25, 21% of jobs) after the mean of each rank, chunk and step is subtracted. A slow rank, a heavy stage or a slow
step cannot cause this. No rank is a suspect: the data is the cause.
"""

import numpy as np

from diagnose.detectors.evidence import MIN_STEPS
from diagnose.findings import Basis, Evidence, Finding, Kind, severity_of
from diagnose.model.operations import Floats, Ints
from diagnose.model.peers import medians
from diagnose.model.view import RunView
from telemetry.stages import Stage
from telemetry.topology import Topology

NAME = "data-imbalance"
MIN_CORRELATION = 0.9
MIN_AGREEMENT = 0.7
"""Correlation of a rank with the others of its replica."""
MIN_SPREAD = 0.05
"""Coefficient of variation over microbatches."""
MIN_COST = 0.01
"""Share of step time. A smaller cost is not reported."""
LEFT_OUT = 20
"""One step in this number is left out of the correlation."""


def detect_data_imbalance(view: RunView) -> list[Finding]:
    """At most one finding, without suspects. It needs operations with microbatches, and two or more in a step."""
    forward, backward = _by_microbatch(view, Stage.FORWARD_COMPUTE), _by_microbatch(view, Stage.BACKWARD_COMPUTE)
    if forward is None or backward is None or len(view.steps) < MIN_STEPS:
        return []
    if forward.shape != backward.shape or forward.shape[2] < 2:
        return []
    lengths = _centred(forward, backward), _centred(backward, forward)
    if np.isnan(lengths[0]).all():
        return []
    usual = _usual_steps(*lengths)
    correlation = _median(_correlations(*(_of_replicas(each[usual], view.topology) for each in lengths)))
    spread = min(map(_spread, lengths))
    agreement = _agreement(lengths[0], view.topology)
    lost_ns = _cost_ns(forward + backward, view)
    share_of_step = lost_ns / float(view.step_ns.mean())
    if correlation < MIN_CORRELATION or spread < MIN_SPREAD or agreement < MIN_AGREEMENT or share_of_step < MIN_COST:
        return []
    evidence = {"agreement_within_replica": round(agreement, 3), **_longest(lengths[0], view)}
    return [_finding(view, correlation, spread, lost_ns, evidence)]


def _by_microbatch(view: RunView, stage: Stage) -> Floats | None:
    """Compute time, [steps, chunks, microbatches, ranks]. None if microbatches are unknown."""
    work, operations = view.work.get(stage), view.operations.get(stage)
    if work is None or work.each_ns is None or operations is None:
        return None
    if work.each_ns.shape != operations.microbatch.shape:
        return None
    known = operations.present & (operations.microbatch >= 0) & (work.each_ns > 0)
    if not known.any():
        return None
    step, _, rank = np.nonzero(known)
    chunk, microbatch = np.maximum(operations.chunk[known], 0), operations.microbatch[known]
    placed = np.full((len(view.steps), chunk.max() + 1, microbatch.max() + 1, known.shape[2]), np.nan)
    placed[step, chunk, microbatch, rank] = work.each_ns[known]
    return placed


def _centred(values: Floats, partner: Floats) -> Floats:
    """Log values without the mean over the microbatches of a step, rank and chunk, for values that have a partner."""
    both = np.isfinite(values) & np.isfinite(partner)
    logs = np.log(np.where(both, values, 1.0))
    count = both.sum(axis=2, keepdims=True)
    mean = logs.sum(axis=2, keepdims=True) / np.maximum(count, 1)
    return np.where(both & (count > 1), logs - mean, np.nan)


def _usual_steps(forward: Floats, backward: Floats) -> Ints:
    """Rows without the steps in which microbatches differ most: one in twenty. The first step of a run is slow in
    forward and backward, and would cause half of the correlation."""
    squares = np.nan_to_num(forward) ** 2 + np.nan_to_num(backward) ** 2
    in_order = np.argsort(squares.sum(axis=(1, 2, 3)))
    return np.sort(in_order[: len(in_order) - max(1, len(in_order) // LEFT_OUT)])


def _of_replicas(lengths: Floats, topology: Topology) -> Floats:
    """Mean over the ranks of each dp replica, which all work on the same microbatch. This reduces their noise."""
    replicas = _by_replica(lengths, topology)
    known = np.isfinite(replicas)
    count = known.sum(axis=-1)
    total = np.where(known, replicas, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _correlations(a: Floats, b: Floats) -> Floats:
    """Pearson correlation of each rank or replica (last axis) over all other axes. Both have mean zero. NaN without
    variation."""
    both = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both, a, 0.0), np.where(both, b, 0.0)
    inner = tuple(range(a.ndim - 1))
    power = np.sqrt((a * a).sum(axis=inner) * (b * b).sum(axis=inner))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(power > 0, (a * b).sum(axis=inner) / power, np.nan))


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _spread(lengths: Floats) -> float:
    """Median over ranks of the standard deviation of log work over microbatches: the coefficient of variation."""
    known = np.isfinite(lengths)
    count = known.sum(axis=(0, 1, 2))
    squares = np.where(known, lengths, 0.0) ** 2
    return _median(np.sqrt(squares.sum(axis=(0, 1, 2))[count > 0] / count[count > 0]))


def _agreement(lengths: Floats, topology: Topology) -> float:
    """Correlation of each rank with the mean of the others of its replica. 1 for a replica of one rank."""
    inside = topology.pp * topology.tp
    if inside == 1:
        return 1.0
    of_chunks = np.where(np.isfinite(lengths).any(axis=1), np.nansum(lengths, axis=1), np.nan)
    replicas = _by_replica(of_chunks, topology)
    others = (replicas.sum(axis=3, keepdims=True) - replicas) / (inside - 1)
    return _median(_correlations(replicas.reshape(of_chunks.shape), others.reshape(of_chunks.shape)))


def _by_replica(values: Floats, topology: Topology) -> Floats:
    """Rearrange [..., ranks] to [..., dp, ranks of a replica]."""
    return topology.arranged(values).reshape(*values.shape[:-1], topology.dp, topology.pp * topology.tp)


def _cost_ns(work: Floats, view: RunView) -> float:
    """Nanoseconds that equal microbatches would save in a step.

    It is the time of the slowest replica through the pipeline, minus the time of m + pp - 1 mean microbatches, where m
    is the number of microbatches. ``work`` is the sum of forward and backward. Constant differences between ranks are
    removed first.
    """
    topology = view.topology
    per_rank = np.nansum(work, axis=1)  # of all chunks, [steps, microbatches, ranks]
    per_rank[~np.isfinite(work).any(axis=1)] = np.nan
    lasting = _lasting(per_rank)
    relative = per_rank / lasting
    typical = medians(_by_replica(relative, topology), axis=3)
    whole = np.isfinite(typical).all(axis=(1, 2))
    if not whole.any():
        return 0.0
    typical = typical[whole]
    way = typical.sum(axis=1) + (topology.pp - 1) * typical.max(axis=1)
    balanced = (typical.shape[1] + topology.pp - 1) * typical.mean(axis=(1, 2))
    scale = float(np.nanmax(np.nanmedian(topology.arranged(lasting), axis=(0, 2))))
    lost = float(np.mean(way.max(axis=1) - balanced)) * scale
    return min(max(0.0, lost), float(view.step_ns.mean()))


def _lasting(per_rank: Floats) -> Floats:
    """Mean work of each rank. 1 for a rank without work."""
    count = np.isfinite(per_rank).sum(axis=(0, 1))
    return np.where(count > 0, np.nansum(per_rank, axis=(0, 1)) / np.maximum(count, 1), 1.0)


def _longest(lengths: Floats, view: RunView) -> Evidence:
    """Evidence that names the microbatch with the longest forward relative to the others of its step."""
    replicas = _of_replicas(lengths, view.topology)
    row, _, microbatch, dp = np.unravel_index(np.nanargmax(replicas), replicas.shape)
    step, ratio = int(view.steps[row]), float(np.exp(np.nanmax(replicas)))
    longest = f"microbatch {microbatch} of {view.topology.replica(int(dp))} in step {step}"
    return {"longest": f"{longest}: {ratio:.2f}x the geometric mean of the step", "steps": [step]}


def _finding(view: RunView, correlation: float, spread: float, lost_ns: float, evidence: Evidence) -> Finding:
    num_steps = len(view.steps)
    share_of_step = lost_ns / float(view.step_ns.mean())
    return Finding(
        detector=NAME,
        kind=Kind.DATA_IMBALANCE,
        severity=severity_of(share_of_step),
        stage=Stage.FORWARD_COMPUTE.label,
        window=view.window,
        seconds_lost=lost_ns * num_steps / 1e9,
        share_lost=share_of_step,
        basis=Basis.EXCESS,
        confidence=round(correlation * num_steps / (num_steps + 2), 2),
        summary=f"the times of microbatches vary by {spread:.0%}, in the same way in forward and backward "
        f"(correlation {correlation:.2f}): the lengths of their sequences differ",
        next_step="balance the sequences over replicas and microbatches: sort or pack them by the sum of squared "
        "lengths, not by the number of tokens",
        evidence={
            "correlation": round(correlation, 3),
            "variation_over_microbatches": round(spread, 3),
            "excess_ms_per_step": round(lost_ns / 1e6, 3),
            **evidence,
        },
    )
