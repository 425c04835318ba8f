"""What findings cost together. Values in, values out."""

from collections.abc import Iterable

import numpy as np

from diagnose.findings import Finding
from ui.dashboard.records import StepTimes


def seconds_lost(findings: Iterable[Finding], steps: StepTimes) -> float:
    """Seconds of job time lost to ``findings``, of each step what the worst of them takes of it.

        step            |  1  |  2  |  3  |  4  |      each of 10 s
        straggler       |  2     2     2     2  |      8 s lost
        loss of link          |  9  |                  9 s lost
        together        |  2  |  9  |  2  |  2  |      15 s lost, not 17

    A finding takes an equal share of each step of its window. So they never cost less together than the worst of them
    alone, and never more than the steps took, but for what a job lost in steps that have not ended.
    """
    share, unended_s = np.zeros(len(steps.step)), 0.0
    for finding in findings:
        window = finding.window
        inside = (steps.step >= window.first_step) & (steps.step <= window.last_step)
        whole_s = float(steps.duration_ns[inside].sum()) / 1e9
        if whole_s:
            share[inside] = np.maximum(share[inside], finding.seconds_lost / whole_s)
        else:
            unended_s = max(unended_s, finding.seconds_lost)
    return float((share * steps.duration_ns).sum()) / 1e9 + unended_s
