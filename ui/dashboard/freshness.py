"""What is stored by now: the answer differs whenever the parts of a page have something new to draw.

It is texts: a browser holds no integer beyond 2**53, and times in nanoseconds would come back as others than they went.
"""

import hashlib

from dash.development.base_component import Component

from telemetry.errors import RankscopeError, UnknownRunError
from ui.dashboard.background import StillWorking
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import told_alerts
from ui.dashboard.data.fleet import agents_said
from ui.dashboard.data.ideal import look_for_ideal
from ui.dashboard.data.runs import run_list
from ui.dashboard.data.whatif import look_for_whatif
from ui.dashboard.pages.states import problem
from ui.dashboard.view_state import Colour, View, ViewState

SHOW_STALLS = (View.OVERVIEW, View.GRID, View.HANG)
SHOW_HOSTS = (View.GRID, View.FLEET)
SHOW_REPORTS = (View.OVERVIEW, View.GRID, View.HEAT_MAP, View.TIMELINE, View.FLEET)


def look(state: ViewState, reads: Reads) -> tuple[list[str], Component | None]:
    """What is stored by now, and what to say when nobody answers."""
    try:
        if state.view is View.RUNS:
            return [
                hashlib.blake2s(repr(run_list(reads, state.find, state.order)).encode(), digest_size=16).hexdigest()
            ], None
        if state.view is View.ALERTS:
            told = told_alerts(reads)
            return [str(told.heard_ns), str(told.is_silent(reads.now_ns()))], None
        run = reads.newest(state)
        seen: list[object] = [run.run_id, run.attempt, run.last_step, run.last_ns, run.state, run.heard.is_silent]
        if state.view in SHOW_STALLS:
            seen += [*reads.evidence_seen(run), _is_judged(state, reads)]
        if state.view in SHOW_REPORTS:
            seen.append(reads.reports.seen(run))
        if state.view is View.WHAT_IF or (state.view is View.GRID and state.colour is Colour.BLAME):
            seen += look_for_whatif(state, reads)
        if state.view is View.TIMELINE:
            seen += look_for_ideal(state, reads)
        if state.view in SHOW_HOSTS:
            seen.append(agents_said(reads, run))
        return [str(one) for one in seen], None
    except UnknownRunError as error:
        return [error.message], None
    except RankscopeError as error:
        return [error.message], problem(error)


def _is_judged(state: ViewState, reads: Reads) -> bool:
    try:
        reads.hang(reads.facts(state))
    except StillWorking:
        return False
    except RankscopeError:
        pass  # for the parts of the page to tell
    return True
