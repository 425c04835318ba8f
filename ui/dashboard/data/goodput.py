"""The goodput ledger of a run and the decisions of its driver, cached until new data arrives."""

import pyarrow as pa

from diagnose.goodput.records import DriverDecision, Ledger
from diagnose.goodput.stored import STAGES, decisions_in, load_ledger
from telemetry.stores.interface import Query
from telemetry.stores.queries import RunDecisions, RunMarks, RunStepTimes
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary
from ui.dashboard.view_state import ViewState

EARLIER_AGE_S = 600.0
"""Steps and marks of earlier attempts are queried at most this often: agents can send them late."""


def ledger_of(run_id: str, reads: Reads) -> Ledger:
    """The ledger of all attempts."""
    newest = reads.newest(ViewState(run=run_id))
    return reads.kept(
        ("ledger", run_id), lambda: load_ledger(_Shared(reads, newest), run_id), ledger_version(run_id, reads)
    )


def ledger_version(run_id: str, reads: Reads) -> tuple[object, ...]:
    """A value that changes when the ledger can have changed."""
    newest = reads.newest(ViewState(run=run_id))
    heard = newest.heard
    decided = decisions_of(run_id, reads)
    return newest.attempt, newest.last_step, newest.last_ns, heard.heard_ns, str(heard.state), len(decided)


def decisions_of(run_id: str, reads: Reads) -> tuple[DriverDecision, ...]:
    """The decisions of the driver in all attempts. Empty without a driver."""
    return decisions_in(reads.ask_all_runs(RunDecisions(run_ids=(run_id,))))


def earlier_steps(newest: RunSummary, reads: Reads) -> pa.Table:
    """The answer to ``RunStepTimes`` about all attempts before the newest one, which the ledger uses too."""
    query = RunStepTimes(run_id=newest.run_id, before_attempt=newest.attempt, stages=STAGES)
    return _Shared(reads, newest).read(query)


class _Shared:
    """A reader that shares steps with the other pages. Steps of earlier attempts are queried every
    ``EARLIER_AGE_S``."""

    def __init__(self, reads: Reads, newest: RunSummary) -> None:
        self._reads = reads
        self._newest = newest
        self._reader = reads.reader_of(newest)

    def read(self, query: Query) -> pa.Table:
        match query:
            case RunStepTimes() | RunMarks():
                return self._reads.ask_all_runs(query, age_s=EARLIER_AGE_S, known=self._newest.attempt)
            case _:
                return self._reader.read(query)
