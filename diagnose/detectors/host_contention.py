"""host-contention: a rank that waits for a CPU more than its peers and neighbours.

    rank 4   |cpu|..|cpu|.|cpu|          .  compute span without CPU time: common on a busy machine
    rank 5   |cpu|.......|cpu|.....|cpu|    a stopped process, or a core shared with a competing load: twice as much

This detector covers only ranks that compute on CPUs. The measure is wall time minus CPU time, without the collectives
inside, so a rank that only waits for others does not appear. If collectives are not recorded, a rank that waits inside
a compute span seems to wait for a CPU. But its spans are as long as those of its peers, so it is not named.

On a machine with more ranks than cores, all ranks wait for a CPU, and these times vary widely from step to step. So
a rank is named only if it waits longer than its peers of the pipeline stage and than the others on its host, beyond
their spread. A host is named if this holds for most of its ranks, compared with other hosts (``contended.py``).

Host metrics (``host_witness.py``) show the cause. If they are strong and account for the lost time, less clear spans
are enough. Lack of memory is judged by the whole compute time, and needs host metrics. A busy host that slows no rank
is not reported.
"""

from collections.abc import Iterable

import numpy as np

from diagnose.detectors.contended import ALONE, WITNESSED, Contended, contended, off_core_alone, with_processor_time
from diagnose.detectors.evidence import MIN_STEPS, since, with_victims
from diagnose.detectors.host_series import period_of
from diagnose.detectors.host_witness import Cause, HostWitness, Witness, next_step
from diagnose.findings import Basis, Finding, Kind, severity_of
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks

NAME = "host-contention"
MIN_COST = 0.02
"""Share of step time. A smaller cost is not reported."""


def detect_host_contention(view: RunView) -> list[Finding]:
    """One finding for each host on which most ranks wait for a CPU, and for each single rank elsewhere."""
    time = off_core_alone(view)
    if time is None or len(view.steps) < MIN_STEPS:
        return []
    witness = HostWitness(view)
    found = {each: _witness_of(witness, each) for each in contended(time, view, ALONE)}
    if witness.is_there:
        found = _with(found, _witnessed(witness, contended(time, view, WITNESSED)))
        paging = contended(with_processor_time(time, view), view, WITNESSED)
        found = _with(found, _witnessed(witness, paging, Cause.MEMORY))
    findings = [_finding(view, each, why) for each, why in found.items()]
    return [finding for finding in findings if finding is not None]


Found = dict[Contended, Witness | None]


def _with(found: Found, more: Found) -> Found:
    """``found``, and the entries of ``more`` whose ranks are not in ``found``."""
    taken = {rank for each in found for rank in each.ranks}
    return found | {each: why for each, why in more.items() if not taken & {*each.ranks}}


def _witnessed(witness: HostWitness, less_clear: Iterable[Contended], cause: Cause | None = None) -> Found:
    """The entries with a strong witness (of ``cause``, if it is given) that explains the lost share of step time."""
    found: Found = {}
    for each in less_clear:
        why = _witness_of(witness, each, cause)
        lost_share = min(1.0, each.excess_ns / float(np.median(witness.view.step_ns[each.stretch.rows])))
        if why is not None and why.explains(lost_share):
            found[each] = why
    return found


def _witness_of(witness: HostWitness, each: Contended, cause: Cause | None = None) -> Witness | None:
    return witness.about(each.ranks, period_of(witness.view, each.stretch.first, each.stretch.last), cause)


def _finding(view: RunView, each: Contended, why: Witness | None) -> Finding | None:
    step_ns = float(np.median(view.step_ns[each.stretch.rows]))
    lost_ns = min(step_ns, each.excess_ns)
    if lost_ns < MIN_COST * step_ns:
        return None
    worst = max(view.off_cpu, key=lambda stage: float(np.nansum(view.off_cpu[stage][:, list(each.ranks)])))
    host = view.hosts[each.ranks[0]]
    who = (
        f"host {host} (ranks {fold_ranks(view.numbers(each.ranks))})"
        if each.whole_host
        else view.describe(each.ranks[0])
    )
    if each.by_whole_time:
        what = f"compute takes {each.ratio:.2f}x its peers' time"
        measured = {"own_time_ratio": round(each.ratio, 3)}
    else:
        what = f"waits longer for a CPU than its peers, by {each.extra:.1f}x its compute time,"
        measured = {"wall_over_cpu_ratio": round(each.ratio, 3), "extra_off_core_over_cpu": round(each.extra, 3)}
    return Finding(
        detector=NAME,
        kind=Kind.HOST_CONTENTION,
        severity=severity_of(lost_ns / step_ns),
        suspects=with_victims(view, each.ranks),
        stage=worst.label,
        window=view.between(each.stretch.first, each.stretch.last),
        seconds_lost=lost_ns * each.stretch.length / 1e9,
        share_lost=lost_ns / step_ns,
        basis=Basis.EXCESS,
        confidence=round(each.share * each.stretch.length / (each.stretch.length + 2), 2),
        summary=f"{who}: {what} in {each.share:.0%} of steps{since(view, each.stretch.first)}"
        + ("" if why is None else f": {why.text}"),
        next_step=f"on {host or 'its host'}: {next_step(why)}",
        evidence={
            **measured,
            "share_of_steps": round(each.share, 3),
            "excess_ms_per_step": round(each.excess_ns / 1e6, 3),
            **({} if why is None else why.evidence),
        },
    )
