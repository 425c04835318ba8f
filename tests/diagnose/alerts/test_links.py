"""The link of a notice opens the dashboard page that shows its finding."""

import pytest

from diagnose.findings import Kind
from tests.diagnose.alerts.made_checks import Watched, finding, quick
from tests.each_case import each_case
from ui.dashboard.address import parse_search
from ui.dashboard.defaults import FAMILY_OF
from ui.dashboard.view_state import StepRange, View


@pytest.mark.parametrize(("kind", "view"), [(Kind.COMPUTE_STRAGGLER, View.OVERVIEW), (Kind.HUNG_COLLECTIVE, View.HANG)])
def test_notice_link_opens_the_view_of_its_kind_with_run_attempt_steps_and_rank(kind: Kind, view: View) -> None:
    (notice,) = Watched(quick(dashboard="https://dash.example/scope/")).sees(finding(kind, 5, steps=(100, 140)))
    address, _, search = notice.link.partition("?")
    state, notes = parse_search("?" + search)
    assert address == "https://dash.example/scope/"
    assert not notes
    assert state.view is view
    assert (state.run, state.attempt, state.rank, state.steps) == ("monday", 0, 5, StepRange(100, 140))


@each_case("kind", sorted(FAMILY_OF))
def test_notice_link_of_a_host_finding_opens_the_fleet_page_of_that_host(kind: Kind) -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(kind, 5, host="gpu 05", steps=(100, 140)))
    state, notes = parse_search(notice.link.partition("?")[2])
    assert not notes
    assert (state.view, state.host, state.steps) == (View.FLEET, "gpu 05", StepRange(100, 140))


def test_notice_link_opens_the_overview_when_the_finding_names_many_hosts() -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(Kind.GPU_ERROR, *range(0, 64, 8)))
    assert parse_search(notice.link.partition("?")[2])[0].view is View.OVERVIEW


def test_notice_link_selects_no_rank_when_the_finding_names_several() -> None:
    (notice,) = Watched(quick(dashboard="http://dash")).sees(finding(Kind.SLOW_LINK, 1, 9))
    state, notes = parse_search(notice.link.partition("?")[2])
    assert state.rank is None
    assert not notes


def test_notice_has_no_link_without_a_dashboard_address() -> None:
    (notice,) = Watched(quick()).sees(finding(Kind.SLOW_LINK, 5))
    assert notice.link == ""
