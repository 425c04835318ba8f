"""A notice leads to the page of the dashboard that shows what it says."""

import pytest

from diagnose.findings import Kind
from tests.diagnose.alerts.made_checks import Watched, finding, quick
from ui.dashboard.address import parse_search
from ui.dashboard.defaults import FAMILY_OF
from ui.dashboard.view_state import StepRange, View


@pytest.mark.parametrize(("kind", "view"), [(Kind.COMPUTE_STRAGGLER, View.OVERVIEW), (Kind.HUNG_COLLECTIVE, View.HANG)])
def test_a_link_shows_run_attempt_steps_and_rank(kind: Kind, view: View) -> None:
    (notice,) = Watched(quick(dashboard="https://dash.example/scope/")).sees(finding(kind, 5, steps=(100, 140)))
    address, _, search = notice.link.partition("?")
    state, notes = parse_search("?" + search)
    assert address == "https://dash.example/scope/"
    assert not notes
    assert state.view is view
    assert (state.run, state.attempt, state.rank, state.steps) == ("monday", 0, 5, StepRange(100, 140))


@pytest.mark.parametrize("kind", sorted(FAMILY_OF))
def test_what_a_host_told_leads_to_that_host(kind: Kind) -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(kind, 5, host="gpu 05", steps=(100, 140)))
    state, notes = parse_search(notice.link.partition("?")[2])
    assert not notes
    assert (state.view, state.host, state.steps) == (View.FLEET, "gpu 05", StepRange(100, 140))


def test_what_names_too_many_hosts_leads_to_the_run() -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(Kind.GPU_ERROR, *range(0, 64, 8)))
    assert parse_search(notice.link.partition("?")[2])[0].view is View.OVERVIEW


def test_several_ranks_are_left_to_the_page() -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(Kind.SLOW_LINK, 1, 9))
    state, notes = parse_search(notice.link.partition("?")[2])
    assert state.rank is None
    assert not notes


def test_without_an_address_there_is_no_link() -> None:
    (notice,) = Watched(quick()).sees(finding(Kind.SLOW_LINK, 5))
    assert notice.link == ""
