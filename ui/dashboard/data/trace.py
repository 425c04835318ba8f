"""What of a view becomes a trace file that a page gives away: a window of steps of the ranks in sight, bounded."""

from diagnose.findings import StepWindow
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice, choose
from diagnose.trace.export import Format
from telemetry.errors import UsageError
from telemetry.stores.queries import Lanes
from telemetry.stores.reader import Reader
from ui.dashboard.columns import ints
from ui.dashboard.data.core import Reads
from ui.dashboard.defaults import Rows
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import StepRange, ViewState
from ui.dashboard.wording import count

PATH, FORM = "trace", "form"
"""Of the route that gives it away, and the field of its address beside those of the view."""
MAX_SPANS = 200_000
"""Of one file; larger ones are the command's."""


def trace_address(state: ViewState, form: Format) -> str:
    """Where the trace of a view is, beside the page itself."""
    return f"{PATH}{state.search()}&{FORM}={form}"


def num_spans(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads) -> int:
    """How many spans a trace of some steps and ranks would hold.

    Raises:
        UsageError: more than a page gives away; the hint tells what does.
    """
    run = facts.summary
    query = Lanes(
        run_id=run.run_id, attempt=run.attempt, first_step=steps.first, last_step=steps.last, ranks=rows.ranks
    )
    found = int(ints(reads.ask(run, query), "spans").sum())
    if found > MAX_SPANS:
        raise UsageError(
            f"{count(found, 'span')}, more than the {MAX_SPANS:,} that a page gives away",
            hint=f"this writes them all: {command(facts, steps, rows)}",
        )
    return found


def chosen_trace(facts: RunFacts, steps: StepRange, rows: Rows, reads: Reads, reader: Reader) -> Choice:
    """What is written.

    Raises:
        UsageError: nothing is stored there, or more than a page gives away.
    """
    num_spans(facts, steps, rows, reads)
    window = StepWindow(first_step=steps.first, last_step=steps.last)
    return choose(reader, facts.summary.run_id, facts.summary.attempt, window=window, ranks=fold_ranks(rows.ranks))


def command(facts: RunFacts, steps: StepRange, rows: Rows) -> str:
    """The same file for the command line."""
    run = facts.summary
    ranks = fold_ranks(rows.ranks).replace(" ", "")
    of = "" if len(rows.ranks) == facts.topology.world_size else f" --ranks {ranks}"
    return (
        f"rankscope export perfetto {run.run_id} --attempt {run.attempt} "
        f"--first-step {steps.first} --last-step {steps.last}{of}"
    )
