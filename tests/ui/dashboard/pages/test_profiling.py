"""Profiles on the pages: links to stored files, and a button only where a profile can be requested."""

import gzip
import json
import time
from collections.abc import Iterator

import httpx
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.telemetry.made_rows import insert, made
from tests.ui.made_profiles import FIRST, SECOND, TRACE, store_profiles
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.profiling import profile_freshness
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.view_state import View, ViewState

OVERVIEW, GRID = ViewState(view=View.OVERVIEW, run="live"), ViewState(view=View.GRID, run="live", rank=5)


@pytest.fixture(scope="module", autouse=True)
def live(store: EmbeddedStore) -> SyntheticRun:
    """A run that still trains, in which rank 5 is slow."""
    now_ns = time.time_ns()
    run = SyntheticRun(run_id="live", started_ns=now_ns - 60 * 10**9)
    run.introduce(store)
    run.advance(store, 40)
    run.beat(store, at_ns=now_ns + 600 * 10**9)  # it stays live, however long the pages take
    store_profiles(store, "live", at_ns=now_ns)
    return run


@pytest.fixture
def reads(store: EmbeddedStore) -> Reads:
    return Reads(StoreReader(store), settings=ReadSettings(takes_orders=True))


def region(name: str, state: ViewState, reads: Reads) -> str:
    drawn = draw_region(name, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False, default=str)


def test_finding_has_a_profile_button_for_its_rank_and_a_peer_and_links_to_their_files(reads: Reads) -> None:
    findings = region("findings", OVERVIEW, reads)
    assert '\\"ranks\\": [1, 5]' in findings
    assert "Profile ranks 1, 5" in findings
    assert "profile of rank 5, steps 20 to 24" in findings
    assert f"profile={FIRST}" in findings
    assert f"profile={SECOND}" not in findings


def test_server_that_accepts_no_profile_requests_shows_no_button(store: EmbeddedStore) -> None:
    findings = region("findings", OVERVIEW, Reads(StoreReader(store)))
    assert "data-order" not in findings
    assert f"profile={FIRST}" in findings


def test_ended_run_has_no_profile_button(store: EmbeddedStore, run: SyntheticRun, reads: Reads) -> None:
    assert "data-order" not in region("findings", ViewState(view=View.OVERVIEW, run=run.run_id), reads)


def test_the_overview_lists_all_profiles_with_their_reasons(reads: Reads, run: SyntheticRun) -> None:
    listed = region("profiles", OVERVIEW, reads)
    assert "failed: the training runs its own profiler" in listed
    assert "compute-straggler" in listed
    assert "profile" not in region("profiles", ViewState(view=View.OVERVIEW, run=run.run_id), reads)


def test_selected_rank_of_the_grid_has_a_profile_button_and_links_to_its_files(reads: Reads) -> None:
    panel = region("grid-rank", GRID, reads)
    assert "Profile rank 5" in panel
    assert "profile of rank 5" in panel
    assert "profile of rank 1" not in panel


def test_a_page_is_drawn_again_when_a_profile_changes(store: EmbeddedStore) -> None:
    before = profile_freshness(OVERVIEW, Reads(StoreReader(store)))
    insert(
        store,
        "profile_states",
        made("profile_states", [{"rank": 3, "profile_id": SECOND, "at_ns": 2**62, "phase": "taken"}]),
        run_id="live",
    )
    assert profile_freshness(OVERVIEW, Reads(StoreReader(store))) != before


@pytest.fixture(scope="module")
def client(store: EmbeddedStore) -> Iterator[httpx.Client]:
    with serving(StoreReader(store)) as address, httpx.Client(base_url=address, verify=False) as client:
        yield client


def test_profile_link_returns_the_file(client: httpx.Client) -> None:
    answer = client.get("profile", params={"run": "live", "attempt": 0, "profile": FIRST, "rank": 5})
    assert answer.status_code == 200, answer.text
    assert gzip.decompress(answer.content) == TRACE
    assert "11111111-rank-00005.json.gz" in answer.headers["content-disposition"]


@each_case(
    ("change", "status"),
    [
        ({"rank": 2}, 404),
        ({"profile": SECOND, "rank": 3}, 404),
        ({"run": "nobody"}, 404),
        ({"rank": "x"}, 400),
        ({"attempt": "9" * 30}, 400),
        ({"run": "' OR 1 = 1 --"}, 404),
    ],
)
def test_profile_link_with_wrong_or_invalid_parameters_returns_no_file(
    client: httpx.Client, change: dict[str, object], status: int
) -> None:
    fields = {"run": "live", "attempt": 0, "profile": FIRST, "rank": 5, **change}
    answer = client.get("profile", params={name: str(value) for name, value in fields.items()})
    assert answer.status_code == status, answer.text
