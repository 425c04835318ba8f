"""The ranks that are named for a run: by the command, by alerts and by every page that shows a stall."""

import re
import time
from collections.abc import Callable

from diagnose.alerts.check import RunChecker
from diagnose.alerts.notice import ErrorReports
from diagnose.findings import Finding
from diagnose.hang.stored import stored_verdict
from diagnose.pipeline import diagnose_run
from telemetry.stores.interface import Reader
from tests.ui.remembering import Remembering
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.data.run_rows import RunRow
from ui.dashboard.pages.grid.rank import selection
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.view_state import View, ViewState

Ranks = tuple[int, ...]
RANK_OF_A_ROW = re.compile(r"\brank (\d+)")
HEADLINE = re.compile(r"critical:? [\w -]+ \(\S+\) rank (\d+) ")


def named_by_pages(reader: Reader, run_id: str, attempt: int = 0, *, now_s: Callable[[], float]) -> dict[str, Ranks]:
    """By page: Overview, Hang and Grid of one attempt."""
    reads, state = Reads(reader, wall_s=now_s), ViewState(view=View.HANG, run=run_id, attempt=attempt)
    verdict, grid = reads.hang(reads.facts(state)), selection(state, reads)
    return {
        "hang": verdict.initiating if verdict else (),
        "hang verdict": _headline(said("hang-verdict", reads, run=run_id, attempt=attempt)),
        "overview": _headline(said("verdict", reads, view=View.OVERVIEW, run=run_id, attempt=attempt)),
        "overview findings": _headline(said("findings", reads, view=View.OVERVIEW, run=run_id, attempt=attempt)),
        "grid": grid.verdict.initiating if grid.verdict else (),
    }


def named_everywhere(reader: Reader, run_id: str, *, now_s: Callable[[], float] = time.time) -> dict[str, Ranks]:
    """As :func:`named_by_pages` of the only attempt, and by the list of runs, the command and alerts."""
    reader = Remembering(reader)
    verdict = stored_verdict(reader, run_id, 0)
    seen = RunChecker(ErrorReports(print), clock_ns=lambda: int(now_s() * 1e9)).check(reader, period_s=5).runs
    watched = [one.finding for run in seen if run.run_id == run_id for one in run.sightings]
    row = row_of(reader, run_id, now_s=now_s)
    return {
        **named_by_pages(reader, run_id, now_s=now_s),
        "runs": tuple(map(int, RANK_OF_A_ROW.findall(row.findings.worst))) if row.findings else (),
        "diagnose hang": verdict.initiating if verdict else (),
        "diagnose": _first(diagnose_run(reader, run_id, 0).findings),
        "alerts": _first(watched),
    }


def row_of(reader: Reader, run_id: str, *, now_s: Callable[[], float] = time.time) -> RunRow:
    """The run in the list of runs."""
    (row,) = [row for row in run_list(Reads(reader, wall_s=now_s)).rows if row.run_id == run_id]
    return row


def _headline(words: str) -> Ranks:
    """The rank in the first headline of a stall."""
    found = HEADLINE.search(words)
    return (int(found[1]),) if found else ()


def _first(findings: list[Finding] | tuple[Finding, ...]) -> Ranks:
    stalls = [finding for finding in findings if finding.detector == "hang"]
    return tuple(stalls[0].ranks) if stalls else ()
