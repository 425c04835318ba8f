"""The comparison that a page shows. Large ones are computed in the background.

A live run is compared again after ten more steps, not after each step.
"""

from dataclasses import dataclass, replace
from functools import partial

from diagnose.compare.comparison import compare_sides
from diagnose.compare.records import Comparison
from diagnose.compare.sides import SideName, load_side, parse_side
from diagnose.model.chosen_steps import DEFAULT_STEPS
from diagnose.model.run_state import RunState
from telemetry.errors import UsageError
from telemetry.stores.queries import LAST_STEP
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary
from ui.dashboard.view_state import StepRange, ViewState

AGAIN_EVERY = 10
FEW_OPERATIONS = 200_000
"""A page waits for a comparison of at most this many operations: less than a second."""
MOST_CHOICES = 200
"""A page offers at most this many attempts: the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """Both sides with their attempts, and what their answer depends on."""

    a: SideName
    b: SideName
    version: tuple[int, ...]
    """A value that changes when more steps of a live run are stored."""
    num_operations: int

    @property
    def is_one_attempt(self) -> bool:
        """Whether both sides are the whole of one attempt. Then only two of its steps can be compared."""
        return self.a == self.b and self.a.window is None and not self.a.ranks


def choices(reads: Reads) -> list[str]:
    """The newest attempts as ``run/attempt``."""
    return [f"{row['run_id']}/{row['attempt']}" for row in reads.run_rows()[:MOST_CHOICES]]


def side_parts(name: str) -> tuple[str, str]:
    """The run of a side, and its steps and ranks: ``gpt/0`` and ``steps=0-9/ranks=0-7``. The run can be missing."""
    parts = name.split("/")
    first = next((at for at, part in enumerate(parts) if at and "=" in part), len(parts))
    return "/".join(parts[:first]), "/".join(parts[first:])


def joined_side(run: str, part: str) -> str:
    """The inverse of :func:`side_parts`."""
    return f"{run}/{part}" if part else run


def side_names(state: ViewState, reads: Reads) -> tuple[str, str]:
    """The sides of the address. The default of B is the run of the page. The default of A is the newest attempt before
    B, or else the newest other attempt. If there is no other, A is B if A has steps or ranks, and empty otherwise."""
    (run_a, part_a), (run_b, part_b) = side_parts(state.a), side_parts(state.b)
    if not run_b:
        run = reads.newest(state)
        run_b = f"{run.run_id}/{run.attempt}"
    if not run_a:
        stored = choices(reads)
        place = next((at for at, name in enumerate(stored) if name == run_b or name.startswith(f"{run_b}/")), -1)
        others = [*stored[place + 1 :], *stored[: max(place, 0)]]
        run_a = others[0] if others else run_b if part_a else ""
    return joined_side(run_a, part_a), joined_side(run_b, part_b)


def comparison_request(state: ViewState, reads: Reads) -> ComparisonRequest | None:
    """The comparison that an address requests. None if there is no side A.

    Raises:
        UnknownRunError: a run is not stored.
        UsageError: the name of a side is not valid.
    """
    a, b = side_names(state, reads)
    if not a:
        return None
    sides = [parse_side(name) for name in (a, b)]
    runs = [reads.newest(ViewState(run=side.run_id, attempt=side.attempt)) for side in sides]
    exact = [replace(side, attempt=run.attempt) for side, run in zip(sides, runs, strict=True)]
    return ComparisonRequest(
        a=exact[0],
        b=exact[1],
        version=tuple(map(_version, runs)),
        num_operations=sum(_num_operations(side, run, reads) for side, run in zip(exact, runs, strict=True)),
    )


def comparison(request: ComparisonRequest, reads: Reads) -> Comparison:
    """The comparison.

    Raises:
        StillWorking: the comparison has many operations, and is not ready.
        UsageError: see ``load_side`` and ``compare_sides``.
    """
    answers = reads.analyses if request.num_operations <= FEW_OPERATIONS else reads.background
    return answers.get(("compare", request.a, request.b, request.version), partial(_compared, request, reads))


def comparison_freshness(state: ViewState, reads: Reads) -> list[object]:
    """A value that changes when the comparison is ready, or when there is a newer one."""
    try:
        request = comparison_request(state, reads)
    except UsageError:
        return []
    if request is None:
        return [len(choices(reads))]
    key = ("compare", request.a, request.b, request.version)
    is_ready = request.num_operations <= FEW_OPERATIONS or reads.background.is_ready(key)
    return [str(request.a), str(request.b), *request.version, is_ready]


def _compared(request: ComparisonRequest, reads: Reads) -> Comparison:
    sides = []
    for name in (request.a, request.b):
        run = reads.newest(ViewState(run=name.run_id, attempt=name.attempt))
        sides.append(load_side(reads.reader_of(run), name))
    return compare_sides(*sides)


def _version(run: RunSummary) -> int:
    return run.last_step // AGAIN_EVERY if run.state is RunState.LIVE else run.last_step


def _num_operations(side: SideName, run: RunSummary, reads: Reads) -> int:
    first = max(run.first_step, run.last_step - DEFAULT_STEPS + 1)
    steps = StepRange(first, run.last_step)
    if side.window is not None:
        steps = StepRange(side.window.first_step, min(side.window.last_step, LAST_STEP))
    return reads.num_operations(run, steps)
