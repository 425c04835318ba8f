"""Names of sides, and how they are read from a store.

RUN                              the newest attempt, its newest 200 steps without the settling steps
RUN/0                            attempt 0
RUN/0/steps=100-199              exactly these steps
RUN/steps=100-/ranks=0-7,12      from step 100 on, some ranks
"""

import re
from dataclasses import dataclass

import numpy as np

from diagnose.compare.records import Side
from diagnose.findings import StepWindow
from diagnose.model.load import MAX_OPERATIONS, load_view, newest_attempt
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks, unfold_ranks
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP

FEWEST_STEPS = 10
"""Each side needs at least this many steps. Fewer steps cannot show a difference."""
MOST_SETTLING = 10
"""Largest number of settling steps. They are the first quarter of the stored steps of an attempt."""
FEWEST_SETTLING = 2
EXAMPLE = "such as gpt, gpt/0, gpt/0/steps=100-199 or gpt/ranks=0-7"
_STEPS = re.compile(r"(\d{1,10})(?:-(\d{0,10}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideName:
    """The name of a side. If ``attempt`` is None: the newest attempt. If ``window`` is None: the newest steps."""

    run_id: str
    attempt: int | None = None
    window: StepWindow | None = None
    ranks: str = ""
    """``0-7,12``. Empty: all."""

    def __str__(self) -> str:
        parts = [self.run_id]
        if self.attempt is not None:
            parts.append(str(self.attempt))
        if self.window is not None:
            last = "" if self.window.last_step == LAST_STEP else self.window.last_step
            parts.append(f"steps={self.window.first_step}-{last}")
        return "/".join([*parts, *([f"ranks={self.ranks}"] if self.ranks else [])])


def parse_side(text: str) -> SideName:
    """The side that ``text`` names.

    Raises:
        UsageError: the text has another form.
    """
    run_id, *parts = text.split("/")
    attempt, window, ranks = None, None, ""
    for part in parts:
        key, has_value, value = part.partition("=")
        if not has_value and part.isascii() and part.isdecimal() and attempt is None:
            attempt = int(part)
        elif key == "steps" and window is None:
            window = _window(value)
        elif key == "ranks" and value and not ranks:
            ranks = value
        else:
            raise UsageError(
                f"{part!r} in {text!r} is not an attempt, steps or ranks",
                hint=f"name a side as RUN/ATTEMPT/steps=0-9/ranks=0-7, {EXAMPLE}",
            )
    if not run_id:
        raise UsageError(f"{text!r} names no run", hint=f"give the name of a run, {EXAMPLE}")
    return SideName(run_id=run_id, attempt=attempt, window=window, ranks=ranks)


def _window(text: str) -> StepWindow:
    found = _STEPS.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not a range of steps", hint="such as steps=100-199, steps=100- or steps=100")
    first = int(found[1])
    last = first if found[2] is None else int(found[2] or LAST_STEP)
    if first > last:
        raise UsageError(f"steps {text!r}: {first} is larger than {last}", hint="swap the two numbers")
    return StepWindow(first_step=first, last_step=last)


def load_side(reader: Reader, name: SideName, *, max_operations: int = MAX_OPERATIONS // 2) -> Side:
    """Read a side from a store. If the steps have more than ``max_operations``, only the newest of them are read.

    Raises:
        UnknownRunError: there is no such run or attempt.
        UsageError: too few steps are stored, or a rank does not exist.
    """
    run_id, attempt = newest_attempt(reader, name.run_id, name.attempt)
    view = load_view(reader, run_id, attempt, name.window, max_operations=max_operations, with_inner=True)
    return side_of(view, name)


def side_of(view: RunView, name: SideName) -> Side:
    """The side of a comparison that ``name`` describes: its steps and ranks, taken from a loaded view of its run.

    Raises:
        UsageError: the view has too few steps, or a rank does not exist.
    """
    ranks = unfold_ranks(name.ranks, view.topology.world_size) if name.ranks else ()
    usual = view.without_profiled()
    if name.window is None:
        usual = _without_settling(usual)
    if len(usual.steps) < FEWEST_STEPS:
        raise UsageError(
            f"{name} has {len(usual.steps)} steps to compare, without settling steps and profiles",
            hint=f"a comparison needs {FEWEST_STEPS} on each side",
        )
    whole = len(ranks) == view.topology.world_size
    exact = SideName(
        run_id=view.run_id, attempt=view.attempt, window=name.window, ranks=fold_ranks(ranks).replace(" ", "")
    )
    return Side(
        view=usual,
        label=str(exact),
        ranks=() if whole else ranks,
        left_out=len(view.steps) - len(usual.steps),
    )


def _without_settling(view: RunView) -> RunView:
    """The view without the settling steps of the attempt, which compile, allocate and fill caches."""
    stored = view.history.steps if len(view.history.steps) else view.steps
    if not len(stored):
        return view
    num_steps = min(MOST_SETTLING, max(FEWEST_SETTLING, len(stored) // 4))
    left_out = int(np.searchsorted(view.steps, int(stored[0]) + num_steps))
    return view.newest(len(view.steps) - left_out) if left_out < len(view.steps) else view
