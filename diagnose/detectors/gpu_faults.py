"""Faults of each GPU with their grade, from the events and counters of its host.

gpu-xid, gpu-error, device-gone            events, by NVIDIA's catalogue of Xids
uncorrected ECC, rows to remap, NVLink     counters that grew, states that last
corrected ECC                              no fault: ECC has corrected them
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from diagnose.model.fleet import NS_PER_S, HostEvent, HostSeries
from diagnose.model.gpus import Gpu, is_gpu, total_growth
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening, Metric
from telemetry.xid import XidSeverity, meaning_of

RECENT_NS = 600 * NS_PER_S
"""Before the first step, only fatal faults within this time are reported."""
MIN_LINK_ERRORS = 100
LINK_ERRORS_TO_PEERS = 10.0
"""A GPU needs this many times the errors of every other GPU."""
CLEARED_AWAY = 45
"""Xid for the cleanup of a process that ended. Alone it is not a fault."""
NVLINK_XIDS = frozenset({74, *range(144, 151), 155})


class Grade(IntEnum):
    """What a fault means for the job."""

    APPLICATION = 1
    """The application may be the cause."""
    SERVICE = 2
    """The job continues, but the GPU needs a reset or a check."""
    FATAL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of a GPU."""

    gpu: Gpu
    at_ns: int
    grade: Grade
    text: str
    action: str
    """What to do: a bucket of NVIDIA's Xid catalogue, such as ``RESET_GPU``."""
    xid: int = 0


MOST_DIGITS = 6
"""Digits of the number of an Xid."""
_GRADES = {
    XidSeverity.FATAL: Grade.FATAL,
    XidSeverity.SERVICE: Grade.SERVICE,
    XidSeverity.APPLICATION: Grade.APPLICATION,
}


def faults_of_gpus(view: RunView) -> dict[Gpu, list[Fault]]:
    """GPU -> its faults that are relevant for the steps of the view, in order of time."""
    found: dict[Gpu, list[Fault]] = {}
    for fault in (*_from_events(view), *_from_states(view), *_from_links(view)):
        if _matters(fault, view):
            found.setdefault(fault.gpu, []).append(fault)
    return {gpu: sorted(faults, key=lambda fault: fault.at_ns) for gpu, faults in found.items()}


def _matters(fault: Fault, view: RunView) -> bool:
    if view.step_start_ns is None or not len(view.step_start_ns):
        return True
    before_ns = int(view.step_start_ns[0]) - fault.at_ns
    return before_ns <= 0 or (fault.grade is Grade.FATAL and before_ns <= RECENT_NS)


def _from_events(view: RunView) -> Iterator[Fault]:
    for event in view.fleet.named(Happening.GPU_XID, Happening.GPU_ERROR, Happening.DEVICE_GONE):
        if is_gpu(event.device) and (fault := _from_event(event)) is not None:
            yield fault


def _from_event(event: HostEvent) -> Fault | None:
    gpu = Gpu(host=event.host, device=event.device)
    if event.name == Happening.DEVICE_GONE:
        text = event.text or "the GPU is lost"
        return Fault(gpu=gpu, at_ns=event.at_ns, grade=Grade.FATAL, text=text, action="RESTART_BM")
    if event.name == Happening.GPU_ERROR:
        text = event.text or "critical error"
        return Fault(gpu=gpu, at_ns=event.at_ns, grade=Grade.FATAL, text=text, action="RESET_GPU")
    number, _, words = event.text.partition(" ")
    if not (number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS):
        return None
    xid = meaning_of(int(number))
    if xid.severity not in _GRADES:
        return None
    name = xid.name if xid.known else words or xid.name
    return Fault(
        gpu=gpu,
        at_ns=event.at_ns,
        grade=_GRADES[xid.severity],
        text=f"Xid {xid.number} ({name})",
        action=xid.action,
        xid=xid.number,
    )


def _from_states(view: RunView) -> Iterator[Fault]:
    for series in view.fleet.of(Metric.GPU_ECC_UNCORRECTED):
        if (grown := int(total_growth(series)[-1])) > 0:
            yield _of(series, _first_growth_ns(series), f"{grown} uncorrected memory errors", "RESET_GPU")
    for metric, describe in _STATES.items():
        for series in view.fleet.of(metric):
            if (state := int(series.value[-1])) > 0:
                yield _of(series, _since_ns(series, view), *describe(state))


_RECOVERY_ACTIONS = {
    1: ("requests a reset of the GPU", "RESET_GPU"),
    2: ("requests a reboot of the host", "RESTART_BM"),
    3: ("requests the end of peer-to-peer traffic", "RESET_GPU"),
    4: ("requests a reset of the GPU after its peer-to-peer traffic has ended", "RESET_GPU"),
    5: ("requests a recovery of the GPU's IMEX domain (NVLink memory sharing)", "CONTACT_SUPPORT"),
    6: ("requests a reset of the GPU's PCIe bus", "RESET_GPU"),
    7: ("requests a reboot of the host", "RESTART_BM"),
}
"""Number of a recovery action in NVML -> what the driver requests, and a bucket of the Xid catalogue."""


def _asked_for(action: int) -> tuple[str, str]:
    wanted, bucket = _RECOVERY_ACTIONS.get(action, (f"requests recovery action {action}", "CONTACT_SUPPORT"))
    return f"the driver {wanted}", bucket


_STATES: dict[str, Callable[[int], tuple[str, str]]] = {
    Metric.GPU_REMAP_FAILED: lambda _: ("a memory row could not be remapped", "CONTACT_SUPPORT"),
    Metric.GPU_REMAP_PENDING: lambda _: ("memory rows are remapped at the next reset", "RESET_GPU"),
    Metric.GPU_RECOVERY_ACTION: _asked_for,
}
"""Metric of a lasting state -> its meaning, and a bucket of the Xid catalogue."""


def _since_ns(series: HostSeries, view: RunView) -> int:
    """The first time of a state within the steps of the view. An older state is relevant for them as well."""
    first_ns = int(view.step_start_ns[0]) if view.step_start_ns is not None and len(view.step_start_ns) else 0
    since = np.flatnonzero((series.value > 0) & (series.at_ns >= first_ns))
    return int(series.at_ns[since[0]]) if len(since) else max(first_ns, int(series.at_ns[-1]))


def _from_links(view: RunView) -> Iterator[Fault]:
    """A fault of the GPU whose NVLink errors grow at least ``LINK_ERRORS_TO_PEERS`` times as much as those of any
    other."""
    counters = [series for series in view.fleet.of(Metric.GPU_NVLINK_ERRORS) if is_gpu(series.device)]
    grown = np.array([float(total_growth(series)[-1]) for series in counters])
    for place, series in enumerate(counters):
        others = np.delete(grown, place)
        if len(others) and grown[place] >= max(MIN_LINK_ERRORS, LINK_ERRORS_TO_PEERS * (1.0 + others.max())):
            yield _of(series, _first_growth_ns(series), f"{grown[place]:.0f} NVLink errors", "WORKFLOW_NVLINK")


def _of(series: HostSeries, at_ns: int, text: str, action: str) -> Fault:
    gpu = Gpu(host=series.host, device=series.device)
    return Fault(gpu=gpu, at_ns=at_ns, grade=Grade.SERVICE, text=text, action=action)


def _first_growth_ns(series: HostSeries) -> int:
    return int(series.at_ns[int(np.argmax(total_growth(series) > 0))])
