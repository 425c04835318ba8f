"""The clocks of a run's hosts, the same for all pages: those that a collector stored, otherwise estimated here.

An estimate needs several queries, so it is cached: for 30 s if the run is live, otherwise until new data arrives.
"""

from collections.abc import Sequence

import numpy as np

from diagnose.model.host_clocks import WindowClocks, estimated_clocks, newest_stored, stored_clocks
from diagnose.model.run_state import RunState
from telemetry.clocks.align_evidence import ClockTable
from telemetry.clocks.windows import end_of_window
from telemetry.errors import UsageError
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunFacts, RunSummary
from ui.dashboard.view_state import StepRange

ESTIMATE_AGE_NS = 30_000_000_000
"""The clocks of a live run are estimated at most this often."""


def clocks_now(reads: Reads, facts: RunFacts) -> WindowClocks:
    """The clocks of all hosts in the newest window.

    Raises:
        UsageError: no step is complete.
    """
    run = facts.summary
    stored = reads.compute(
        run, "newest clocks", lambda reader: newest_stored(reader, **run.key, last_step=run.last_step)
    )
    found = stored or _estimated(reads, run, run.last_step)
    if found is None:
        raise UsageError(f"{run.run_id} has no completed step yet", hint="this page updates automatically")
    return found


def clocks_of_steps(reads: Reads, facts: RunFacts, steps: StepRange, ranks: Sequence[int]) -> ClockTable:
    """The clocks in and around some steps. They are estimated only if ``ranks`` are on several hosts."""
    run = facts.summary
    inside = (facts.steps.step >= steps.first) & (facts.steps.step <= steps.last)
    step_ns = facts.steps.duration_ns[inside if inside.any() else slice(-1, None)]
    stored = reads.compute(
        run, ("clocks", steps), lambda reader: stored_clocks(reader, **run.key, steps=np.array(steps), step_ns=step_ns)
    )
    if stored or not len(step_ns) or len({facts.hosts[rank] for rank in ranks}) < 2:
        return ClockTable(stored)
    estimated = _estimated(reads, run, end_of_window(steps.last, float(np.median(step_ns)), run.last_step))
    return ClockTable(estimated.clocks if estimated else ())


def _estimated(reads: Reads, run: RunSummary, last_step: int) -> WindowClocks | None:
    """Estimated clocks of the window that ends with ``last_step``. All pages share the estimate of the newest
    window."""
    window = None if last_step == run.last_step else last_step
    is_live = run.state is RunState.LIVE
    return reads.kept(
        ("clocks", run.run_id, run.attempt, window),
        lambda: estimated_clocks(reads.reader_of(run), **run.key, last_step=last_step),
        version=reads.now_ns() // ESTIMATE_AGE_NS if is_live else (run.last_step, run.last_ns),
    )
