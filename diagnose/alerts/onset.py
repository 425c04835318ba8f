"""The onset of a finding: the step at which the problem began, and the wall clock of that step.

steps   560 ........ 600 ............ 639
                      |------------------   the problem
        window of 40 steps: begins in step 600               exact
               window of 20 steps: [620 ... 639]             step 620 or earlier, not exact
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from diagnose.findings import Finding
from diagnose.model.view import RunView

MAX_STEP = 2**32 - 1
MAX_NS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """When a problem began."""

    step: int
    at_ns: int
    """Wall clock of the job's hosts. 0: not known."""
    is_exact: bool
    """Whether it began in exactly this step. If not, it began there or earlier: earlier steps were not examined."""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> "Onset":
        """Read an onset from stored values.

        Raises:
            ValueError, TypeError, LookupError: the values are not an onset.
        """
        step, at_ns = int(values["step"]), int(values["at_ns"])
        if not (0 <= step <= MAX_STEP and 0 <= at_ns <= MAX_NS):
            raise ValueError("an onset out of range")
        return cls(step=step, at_ns=at_ns, is_exact=bool(values["is_exact"]))

    def as_object(self) -> dict[str, int | bool]:
        """The onset as an object for JSON reports. Its keys differ from those that :meth:`parse` reads."""
        return {"step": self.step, "at_ns": self.at_ns, "exact": self.is_exact}

    @property
    def in_words(self) -> str:
        """The onset in words: ``step 600``, ``step 420 or earlier``."""
        return f"step {self.step}" if self.is_exact else f"step {self.step} or earlier"


def onset_of(finding: Finding, view: RunView) -> Onset:
    """The onset of a finding about ``view``: the first step of the finding."""
    step = finding.window.first_step
    began_first = len(view.history.steps) > 0 and step <= int(view.history.steps[0])
    is_exact = step > view.window.first_step or began_first
    return Onset(step=step, at_ns=_start_ns(view, step), is_exact=is_exact)


def stall_onset(finding: Finding, view: RunView) -> Onset:
    """The onset of a stall: the end of the newest completed step."""
    at_ns = 0
    if view.step_start_ns is not None and len(view.steps):
        at_ns = int((view.step_start_ns + view.step_ns.astype(np.int64)).max())
    return Onset(step=finding.window.last_step, at_ns=at_ns, is_exact=True)


def earlier(first: Onset | None, second: Onset | None) -> Onset | None:
    """The better of two onsets of one problem: an exact one, otherwise the earlier one."""
    if first is None or second is None:
        return first or second
    return min(first, second, key=lambda onset: (not onset.is_exact, onset.step))


def _start_ns(view: RunView, step: int) -> int:
    """Wall clock at which a step began. 0 if the view does not contain it."""
    if view.step_start_ns is None:
        return 0
    rows = np.flatnonzero(view.steps == step)
    return int(view.step_start_ns[rows[0]]) if len(rows) else 0
