"""How long ranks on processors were off their cores while they computed: own wall time less processor time."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from diagnose.model.peers import robust_sigma
from diagnose.model.view import Basis, FloatMatrix, FloatVector, RunView
from telemetry.stages import Stage

SPREAD_FLOOR = 0.03
UPPER_TENTH_TO_SIGMA = 1.2816
"""Distance of the upper tenth from the median, in standard deviations of a normal distribution."""
MOST_OVERLAP = 0.5
"""Of the own wall time of a stage: where collectives cover more, time off the core beside them says little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffCore:
    """Own time of each rank over all compute stages, nanoseconds [steps, ranks]; NaN where it was not measured."""

    off_ns: FloatMatrix
    cpu_ns: FloatMatrix
    log_stretch: FloatMatrix
    """Log of own wall time over processor time: zero for who is never off the core."""
    whole: bool = False
    """``off_ns`` is all wall time of own work, and ``log_stretch`` its logarithm less that of its peers."""


def off_core(view: RunView) -> OffCore | None:
    """Waiting in collectives of gradients included. None where processor time was not measured: ranks on GPUs."""
    return _together(view.off_cpu, view)


def off_core_alone(view: RunView) -> OffCore | None:
    """The same while ranks waited for nobody, in stages that are mostly free of collectives; None without such."""
    return _together(
        {stage: view.alone_off_cpu(stage) for stage in view.off_cpu if _is_mostly_alone(stage, view)}, view
    )


def _is_mostly_alone(stage: Stage, view: RunView) -> bool:
    if stage not in view.overlap or stage not in view.work:
        return True
    share = view.overlap[stage] / np.maximum(view.work[stage].ns + view.off_cpu[stage], 1.0)
    return not float(np.nanmedian(share)) > MOST_OVERLAP


def _together(off_cpu: Mapping[Stage, FloatMatrix], view: RunView) -> OffCore | None:
    stages = [stage for stage in off_cpu if stage in view.work]
    if not stages or any(view.work[stage].basis is not Basis.PROCESSOR_TIME for stage in stages):
        return None
    off_ns: FloatMatrix = np.sum([off_cpu[stage] for stage in stages], axis=0)
    cpu_ns: FloatMatrix = np.sum([view.work[stage].ns for stage in stages], axis=0)
    known = (cpu_ns > 0) & (off_ns >= 0)
    off_ns, cpu_ns = np.where(known, off_ns, np.nan), np.where(known, cpu_ns, np.nan)
    return OffCore(off_ns=off_ns, cpu_ns=cpu_ns, log_stretch=np.log1p(off_ns / cpu_ns))


def spread_of(medians: FloatVector) -> float:
    """How far apart ranks lie that nobody suspects, as a standard deviation. Time off the core has a long upper tail,
    so its upper end tells as well."""
    known = medians[~np.isnan(medians)]
    if not len(known):
        return SPREAD_FLOOR
    upper = float(np.quantile(known, 0.9) - np.median(known)) / UPPER_TENTH_TO_SIGMA
    return max(upper, robust_sigma(known, SPREAD_FLOOR))
