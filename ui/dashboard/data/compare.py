"""The comparison that a page shows. Large ones are computed in the background.

A live run is compared again after ten more steps, not after each step.
"""

from dataclasses import dataclass, replace
from functools import partial

from diagnose.compare.comparison import compare_sides
from diagnose.compare.records import Comparison
from diagnose.compare.sides import SideName, load_side, parse_side
from diagnose.model.load import DEFAULT_STEPS
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
"""Attempts that a page offers: the newest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest:
    """Both sides with their attempts, and what their answer depends on."""

    a: SideName
    b: SideName
    version: tuple[int, ...]
    """Changes when more steps of a live run are stored."""
    num_operations: int


def choices(reads: Reads) -> list[str]:
    """``run/attempt`` of the newest attempts."""
    return [f"{row['run_id']}/{row['attempt']}" for row in reads.run_rows()[:MOST_CHOICES]]


def side_names(state: ViewState, reads: Reads) -> tuple[str, str]:
    """The sides of the address. B is otherwise the run of the page, A the newest attempt before it. A may be empty."""
    run = reads.newest(state)
    b = state.b or f"{run.run_id}/{run.attempt}"
    if state.a:
        return state.a, b
    stored, run_b = choices(reads), b.partition("/")[0]
    place = next((at for at, name in enumerate(stored) if name == b or name.startswith(f"{run_b}/")), -1)
    return next(iter(stored[place + 1 :]), ""), b


def comparison_request(state: ViewState, reads: Reads) -> ComparisonRequest | None:
    """The comparison of an address. None without A.

    Raises:
        UnknownRunError: a run is not stored.
        UsageError: the name of a side has another form.
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
        StillWorking: it has many operations, and is not ready.
        UsageError: see ``load_side`` and ``compare_sides``.
    """
    answers = reads.analyses if request.num_operations <= FEW_OPERATIONS else reads.background
    return answers.get(("compare", request.a, request.b, request.version), partial(_compared, request, reads))


def comparison_freshness(state: ViewState, reads: Reads) -> list[object]:
    """Changes when the comparison is ready, or when there is a newer one."""
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
        sides.append(load_side(reads.reader_of(run), name, max_operations=reads.max_operations // 2))
    return compare_sides(*sides)


def _version(run: RunSummary) -> int:
    return run.last_step // AGAIN_EVERY if run.state is RunState.LIVE else run.last_step


def _num_operations(side: SideName, run: RunSummary, reads: Reads) -> int:
    first = max(run.first_step, run.last_step - DEFAULT_STEPS + 1)
    steps = StepRange(first, run.last_step)
    if side.window is not None:
        steps = StepRange(side.window.first_step, min(side.window.last_step, LAST_STEP))
    return reads.num_operations(run, steps)
