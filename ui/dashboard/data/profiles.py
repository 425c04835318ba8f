"""Profiles on demand of a run."""

import pyarrow as pa

from diagnose.profiles import StoredProfile, stored_profiles
from telemetry.stores.interface import Query
from ui.dashboard.data.core import Reads
from ui.dashboard.records import RunSummary


def profiles_of(run: RunSummary, reads: Reads) -> list[StoredProfile]:
    """The profiles of an attempt, the newest first. At most a second old."""
    return stored_profiles(_Newest(reads), run.run_id, run.attempt)


class _Newest:
    """A reader whose answers are shared by all pages for a second."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def read(self, query: Query) -> pa.Table:
        return self._reads.ask_all_runs(query)
