"""host-contention: a rank that waits for a CPU more than its peers and neighbours.

    rank 4   |cpu|..|cpu|.|cpu|          .  compute span without CPU time: common on a busy machine
    rank 5   |cpu|.......|cpu|.....|cpu|    a stopped process, or a core shared with a competing load: twice as much

Only for ranks that compute on CPUs. The measure is wall time less CPU time, without the collectives inside, so a rank
that only waits for others does not appear. If collectives are not recorded, a rank that waits inside a compute span
looks as if it waited for a CPU. Its spans are as long as those of its peers, and such a rank is not named.

On a machine with more ranks than cores all have much of it, scattered widely from step to step:
a rank is named only if it lies far from its peers of the pipeline stage and from the others on its host, a host if
most of its ranks are high and those of the others are not (``contended.py``).

Host metrics (``host_witness.py``) show the cause. If they are strong and account for the lost time, less clear spans
are enough. Lack of memory is judged by the whole compute time, and needs host metrics. A busy host that slows no rank
is not reported.
"""

from collections.abc import Iterable

import numpy as np

from diagnose.detectors.contended import ALONE, WITNESSED, Contended, contended, off_core_alone, with_processor_time
from diagnose.detectors.evidence import MIN_STEPS, with_victims
from diagnose.detectors.host_series import Cause, Witness, next_step, period_of
from diagnose.detectors.host_witness import HostWitness
from diagnose.findings import Finding, Kind, severity_of
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks

NAME = "host-contention"
MIN_COST = 0.02
"""Of step time; below it nothing is said."""


def detect_host_contention(view: RunView) -> list[Finding]:
    """One finding for each host of which most ranks are kept off their cores, and for each single rank elsewhere."""
    time = off_core_alone(view)
    if time is None or len(view.steps) < MIN_STEPS:
        return []
    witness = HostWitness(view)
    found = {one: _asked(witness, one) for one in contended(time, view, ALONE)}
    if witness.is_there:
        found = _with(found, _witnessed(witness, contended(time, view, WITNESSED)))
        paging = contended(with_processor_time(time, view), view, WITNESSED)
        found = _with(found, _witnessed(witness, paging, Cause.MEMORY))
    findings = [_finding(view, one, why) for one, why in found.items()]
    return [one for one in findings if one is not None]


Found = dict[Contended, Witness | None]


def _with(found: Found, more: Found) -> Found:
    """Also those that accuse nobody anew."""
    taken = {rank for one in found for rank in one.ranks}
    return found | {one: why for one, why in more.items() if not taken & {*one.ranks}}


def _witnessed(witness: HostWitness, less_clear: Iterable[Contended], cause: Cause | None = None) -> Found:
    """Those for which the witness is strong, and of this cause where one is given."""
    told = {one: _asked(witness, one, cause) for one in less_clear}
    lost = {one: _lost_share(witness.view, one) for one in told}
    return {one: why for one, why in told.items() if why is not None and why.explains(lost[one])}


def _asked(witness: HostWitness, one: Contended, cause: Cause | None = None) -> Witness | None:
    return witness.about(one.ranks, period_of(witness.view, one.stretch.first, one.stretch.last), cause)


def _lost_share(view: RunView, one: Contended) -> float:
    """Of step time."""
    return min(1.0, one.excess_ns / float(np.median(view.step_ns[one.stretch.rows])))


def _finding(view: RunView, one: Contended, why: Witness | None) -> Finding | None:
    step_ns = float(np.median(view.step_ns[one.stretch.rows]))
    lost_ns = min(step_ns, one.excess_ns)
    if lost_ns < MIN_COST * step_ns:
        return None
    worst = max(view.off_cpu, key=lambda stage: float(np.nansum(view.off_cpu[stage][:, list(one.ranks)])))
    window = view.between(one.stretch.first, one.stretch.last)
    since = f" since step {window.first_step}" if one.stretch.first > MIN_STEPS else ""
    host = view.hosts[one.ranks[0]]
    who = f"host {host} (ranks {fold_ranks(one.ranks)})" if one.whole_host else view.describe(one.ranks[0])
    evidence: dict[str, float | str] = {
        **_measured(one),
        "share_of_steps": round(one.share, 3),
        "share_of_step_time": round(lost_ns / step_ns, 3),
        "excess_ms_per_step": round(one.excess_ns / 1e6, 3),
    }
    return Finding(
        detector=NAME,
        kind=Kind.HOST_CONTENTION,
        severity=severity_of(lost_ns / step_ns),
        suspects=with_victims(view, one.ranks),
        stage=worst.label,
        window=window,
        seconds_lost=lost_ns * one.stretch.length / 1e9,
        confidence=round(one.share * one.stretch.length / (one.stretch.length + 2), 2),
        summary=f"{who}: {_kept(one)} in {one.share:.0%} of steps{since}; costs up to {lost_ns / step_ns:.0%} of each "
        "step" + ("" if why is None else f": {why.words}"),
        next_step=f"on {host or 'its host'}: {next_step(why)}",
        evidence=evidence if why is None else evidence | why.evidence,
    )


def _kept(one: Contended) -> str:
    if one.by_whole_time:
        return f"compute takes {one.ratio:.2f}x its peers' time"
    return f"waits for a CPU {one.extra:.1f}x its compute time longer than its peers"


def _measured(one: Contended) -> dict[str, float]:
    if one.by_whole_time:
        return {"own_time_ratio": round(one.ratio, 3)}
    return {"wall_over_cpu_ratio": round(one.ratio, 3), "extra_off_core_over_cpu": round(one.extra, 3)}
