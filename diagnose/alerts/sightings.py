"""The findings of one run that hold now, each with its onset.

    newest 200 steps --diagnose--> findings that hold now
    newest 40 of them --'

The window of 200 steps shows weak and rare problems. The window of 40 steps shows problems that have just begun, and no
longer shows problems that are over. A finding holds now if its last step is one of the newest steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from diagnose.alerts.alert import OUTLASTING, STANDING
from diagnose.alerts.onset import Onset, onset_of, stall_onset
from diagnose.findings import Finding
from diagnose.model.load import load_view
from diagnose.model.view import RunView
from diagnose.pipeline import Report, diagnose_view, stall_first
from telemetry.run_names import Attempt
from telemetry.stores.interface import Reader

RECENT_STEPS = 40
"""The shorter of the two windows."""
CURRENT_STEPS = 10
"""A problem still exists if its last step is at most this many steps ago."""
MOST_FINDINGS = 10_000
"""Number of findings of one run that are used: the worst ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding that holds at the end of the window."""

    finding: Finding
    has_known_time: bool
    """Whether the time of the problem is known: the finding covers only the newest steps, or begins within the window.
    Any other finding covers a whole long window, and is found until the problem has left that window."""
    onset: Onset | None = None
    """When the problem began. None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFindings:
    """What was found in one attempt of a run."""

    run_id: str
    attempt: int
    step_s: float
    """Usual step time in seconds. 0: not known."""
    sightings: tuple[Sighting, ...]
    has_ended: bool = False
    """Whether every rank has ended, some of them with an error. Only findings that can explain this still hold."""


def diagnosed(reader: Reader, attempt: Attempt, period_s: float, *, has_ended: bool) -> RunFindings:
    """Diagnose the newest steps of an attempt. Returns the findings that hold now.

    ``period_s``: time since the last check. A problem of a single step in this time is found.
    """
    run_id, number = attempt
    view = load_view(reader, run_id, number).without_profiled()
    report = stall_first(diagnose_view(view), reader)
    step_s = _step_s(view)
    current_steps = max(CURRENT_STEPS, round(3 * period_s / step_s)) if step_s > 0 else CURRENT_STEPS
    sightings = list(_current(report, view, current_steps))
    if report.num_steps > RECENT_STEPS:
        newest = view.newest(RECENT_STEPS)
        sightings += _current(diagnose_view(newest), newest, current_steps)
    if has_ended:
        sightings = [sighting for sighting in sightings if sighting.finding.kind in OUTLASTING]
    return RunFindings(run_id=run_id, attempt=number, step_s=step_s, sightings=tuple(sightings), has_ended=has_ended)


def _current(report: Report, view: RunView, current_steps: int) -> Iterator[Sighting]:
    """Findings of a report about ``view`` that hold at its end."""
    for finding in report.findings[:MOST_FINDINGS]:
        is_stall = finding.kind in STANDING
        if is_stall or finding.window.last_step >= report.window.last_step - current_steps:
            onset = stall_onset(finding, view) if is_stall else onset_of(finding, view)
            yield Sighting(finding=finding, has_known_time=_has_known_time(finding, report), onset=onset)


def _has_known_time(finding: Finding, report: Report) -> bool:
    """Whether a finding covers only the newest steps, or begins after the first step of the window."""
    if report.num_steps <= RECENT_STEPS or finding.kind in STANDING:
        return True
    return finding.window.first_step > report.window.first_step


def _step_s(view: RunView) -> float:
    """The median wall time of the newest steps. 0 if there are too few steps."""
    return float(np.median(view.step_ns[-RECENT_STEPS:])) / 1e9 if len(view.step_ns) > 1 else 0.0
