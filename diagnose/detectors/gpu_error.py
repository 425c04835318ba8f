"""gpu-error: a GPU with hardware errors, or a lost GPU; one finding with all its faults.

    gpu5   Xid 48 .. Xid 63 .. rows to remap        one finding with the severity of its worst fault
    gpu2   lost (Xid 79)                            culprit
    gpu0   Xid 74, at about the same time           victim: the other end of its link is lost
    all    Xid 45, after that                       cleanup by the driver: no finding
    gpu1   Xid 31                                   the application may be the cause: low severity

If ranks do not report the UUID of their GPU, the rank of a GPU is only assumed. Then the GPU is named, but no rank.

In 54 days of Llama 3 training, a faulty GPU or its memory caused about half of the unexpected interruptions (arXiv
2407.21783, table 5).
``telemetry/xid.toml`` describes each Xid.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import named, with_victims
from diagnose.detectors.gpu_faults import CLEARED_AWAY, NVLINK_XIDS, Fault, Grade, faults_of_gpus
from diagnose.findings import Finding, Kind, Role, Severity, Suspect
from diagnose.model.fleet import NS_PER_S
from diagnose.model.gpus import Gpu, assumed_ranks, computes_on_cpu, gpu_of_ranks
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks
from telemetry.xid import xid_catalogue

NAME = "gpu-error"
TOGETHER_NS = 120 * NS_PER_S
"""Within this time, a fatal fault of another GPU may be the cause."""
_SEVERITIES = {
    Grade.FATAL: Severity.CRITICAL,
    Grade.SERVICE: Severity.WARNING,
    Grade.APPLICATION: Severity.INFO,
}
_CONFIDENCES = {Grade.FATAL: 0.95, Grade.SERVICE: 0.9, Grade.APPLICATION: 0.4}
ASSUMED_FACTOR = 0.7
"""Factor of the confidence if the rank of the GPU is not known."""
_TO_DO = {
    "RESTART_APP": "restart the job without this GPU. If the error comes back, drain the host",
    "RESET_GPU": "drain the host and reset the GPU (nvidia-smi --gpu-reset). If the error comes back, replace the GPU",
    "RESTART_BM": "drain the host and power-cycle it. If the GPU stays missing, replace it",
    "RESTART_VM": "drain the host and restart the virtual machine",
    "CHECK_MECHANICALS": "drain the host; check the power cables and the seating of the GPU",
    "UPDATE_SWFW": "update the driver and the firmware",
    "WORKFLOW_NVLINK": "check the links (nvidia-smi nvlink -s -e, dmesg), drain the host and reset the GPU. If the "
    "errors come back, have the GPU, its cables and its board checked",
}
_OTHERWISE = "drain the host, read dmesg and nvidia-smi -q, and contact the vendor"
_IF_APPLICATION = (
    "check the application first: run it with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer. If the error follows "
    "this GPU and not the application, drain the host"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The GPU of each rank, and the ranks whose GPU is only assumed."""

    gpus: tuple[Gpu | None, ...]
    assumed: frozenset[int]

    def on(self, gpus: Container[Gpu | None]) -> list[int]:
        return [rank for rank, gpu in enumerate(self.gpus) if gpu is not None and gpu in gpus]


def detect_gpu_errors(view: RunView) -> list[Finding]:
    """One finding for each faulty GPU of the job, and one for all GPUs whose faults the application may have caused."""
    faults = faults_of_gpus(view)
    if not faults:
        return []
    ranks = Ranks(gpus=gpu_of_ranks(view), assumed=assumed_ranks(view))
    victims = _victims(faults)
    sick = {gpu: some for gpu, some in faults.items() if _grade(some) > Grade.APPLICATION and gpu not in victims}
    blamed = {
        gpu: some
        for gpu, some in faults.items()
        if _grade(some) is Grade.APPLICATION and not _cleared_away(some) and not _follows(some, faults, gpu)
    }
    findings = [_sick(view, gpu, sick[gpu], ranks, victims.values()) for gpu in sick]
    return [finding for finding in (*findings, _application(view, blamed, ranks)) if finding is not None]


def _grade(faults: Iterable[Fault]) -> Grade:
    return max(fault.grade for fault in faults)


def _victims(faults: Mapping[Gpu, list[Fault]]) -> dict[Gpu, Gpu]:
    """GPU that has only NVLink errors -> the GPU of the same host whose fatal fault causes them."""
    found: dict[Gpu, Gpu] = {}
    for gpu, some in faults.items():
        if all(fault.xid in NVLINK_XIDS or fault.grade is Grade.APPLICATION for fault in some):
            for other, theirs in faults.items():
                if other.host == gpu.host and other != gpu and _fatal_near(theirs, some[0], but=NVLINK_XIDS):
                    found[gpu] = other
    return found


def _cleared_away(faults: Iterable[Fault]) -> bool:
    return all(fault.xid == CLEARED_AWAY for fault in faults)


def _follows(some: Sequence[Fault], faults: Mapping[Gpu, list[Fault]], gpu: Gpu) -> bool:
    """Whether another GPU failed at about that time: errors of the application then follow from it."""
    return any(other != gpu and _fatal_near(theirs, some[0]) for other, theirs in faults.items())


def _fatal_near(faults: Iterable[Fault], other: Fault, but: frozenset[int] = frozenset()) -> bool:
    return any(
        fault.grade is Grade.FATAL and fault.xid not in but and abs(fault.at_ns - other.at_ns) <= TOGETHER_NS
        for fault in faults
    )


def _sick(view: RunView, gpu: Gpu, faults: list[Fault], ranks: Ranks, culprits: Iterable[Gpu]) -> Finding | None:
    suspects = _suspects(view, gpu, ranks, grade=_grade(faults))
    if not suspects:
        return None
    worst = max(faults, key=lambda fault: fault.grade)
    victims = "; it also causes the NVLink errors of its neighbours" if gpu in culprits else ""
    return _finding(
        view,
        faults,
        suspects,
        summary=f"{_who(view, gpu, suspects, ranks)}: {_listed(faults)}, {_when(view, faults)}{victims}",
        next_step=f"on {gpu.host}: {_TO_DO.get(worst.action, _OTHERWISE)}",
        affected=[gpu],
    )


def _who(view: RunView, gpu: Gpu, suspects: Sequence[Suspect], ranks: Ranks) -> str:
    """``rank 5 (host gpu-03, dp1 pp0 tp1): gpu5``, or ``host gpu-03: gpu5 (used by rank 5, if ...)`` if assumed."""
    known = [suspect.rank for suspect in suspects if suspect.role is Role.INITIATING]
    if known:
        return f"{named(view, known)}: {gpu.device}"
    presumed = ranks.on([gpu])
    rank = f" (used by rank {fold_ranks(presumed)}, if GPUs are assigned in rank order)" if presumed else ""
    return f"host {gpu.host}: {gpu.device}{rank}"


def _suspects(view: RunView, gpu: Gpu, ranks: Ranks, *, grade: Grade) -> tuple[Suspect, ...]:
    """The ranks on a GPU, and the victims of a fatal fault. Empty for a GPU that the job does not use.


    If it is not known which ranks use the GPU, the suspects are the assumed rank, or all ranks of the host that may use
    it.
    """
    here = ranks.on([gpu])
    if here and ranks.assumed.isdisjoint(here):
        everybody = with_victims(view, here)
        return everybody if grade is Grade.FATAL else tuple(each for each in everybody if each.rank in here)
    unknown = (rank for rank, known in enumerate(ranks.gpus) if known is None and view.hosts[rank] == gpu.host)
    maybe = here or [rank for rank in unknown if not computes_on_cpu(view, rank)]
    return tuple(Suspect(rank=rank, host=gpu.host, role=Role.UNKNOWN) for rank in maybe)


def _application(view: RunView, blamed: Mapping[Gpu, list[Fault]], ranks: Ranks) -> Finding | None:
    here = ranks.on(blamed)
    if not here:
        return None
    affected = [gpu for gpu in blamed if gpu in ranks.gpus]
    faults = sorted((fault for gpu in affected for fault in blamed[gpu]), key=lambda fault: fault.at_ns)
    return _finding(
        view,
        faults,
        tuple(
            Suspect(rank=rank, host=view.hosts[rank], role=Role.UNKNOWN if rank in ranks.assumed else Role.INITIATING)
            for rank in here
        ),
        summary=f"{_where(view, here, faults[0].gpu, ranks)}: {_listed(faults)}, {_when(view, faults)}; the "
        "application may be the cause",
        next_step=f"rank{'s' if len(here) > 1 else ''} {fold_ranks(here)}: {_IF_APPLICATION}",
        affected=affected,
    )


def _where(view: RunView, here: list[int], first: Gpu, ranks: Ranks) -> str:
    where = f"{named(view, here)}, first on rank {ranks.on([first])[0]}" if len(here) > 1 else named(view, here)
    return where if ranks.assumed.isdisjoint(here) else f"{where}, if GPUs are assigned in rank order"


def _listed(faults: Iterable[Fault]) -> str:
    """The texts of the faults, each once, the worst first."""
    worst_first = sorted(faults, key=lambda fault: (-fault.grade, fault.at_ns, not fault.xid))
    return ", ".join(dict.fromkeys(fault.text for fault in worst_first))


def _when(view: RunView, faults: Sequence[Fault]) -> str:
    row = _row(view, faults[0])
    if row is None:
        return "before the first step of the window"
    assert view.step_start_ns is not None
    over = faults[0].at_ns > view.step_start_ns[row] + view.step_ns[row]
    return f"{'after' if over else 'in'} step {int(view.steps[row])}"


def _row(view: RunView, fault: Fault) -> int | None:
    """Row of the last step that had begun at the time of the fault, or None if no step had begun."""
    if view.step_start_ns is None or not len(view.step_start_ns):
        return None
    row = int(np.searchsorted(view.step_start_ns, fault.at_ns, side="right")) - 1
    return row if row >= 0 else None


def _finding(
    view: RunView,
    faults: list[Fault],
    suspects: tuple[Suspect, ...],
    *,
    summary: str,
    next_step: str,
    affected: Sequence[Gpu],
) -> Finding:
    grade, row = _grade(faults), _row(view, faults[0])
    is_known = any(suspect.role is Role.INITIATING for suspect in suspects)
    return Finding(
        detector=NAME,
        kind=Kind.GPU_ERROR,
        severity=_SEVERITIES[grade],
        suspects=suspects,
        window=view.window if row is None else view.between(row, len(view.steps) - 1),
        seconds_lost=0.0,
        confidence=round(_CONFIDENCES[grade] * (1.0 if is_known else ASSUMED_FACTOR), 2),
        summary=summary,
        next_step=next_step,
        evidence={
            "hosts": sorted({gpu.host for gpu in affected}),
            "gpus": [f"{gpu.host}/{gpu.device}" for gpu in affected],
            "errors": list(dict.fromkeys(fault.text for fault in faults)),
            "xids": sorted({fault.xid for fault in faults if fault.xid}),
            "first_at_ns": faults[0].at_ns,
            "xid_catalogue": xid_catalogue().dated.isoformat(),
        },
    )
