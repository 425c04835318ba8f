"""The page of the findings log: filters, pages and actions. No stored value can break it."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from diagnose.alerts.alert import Alert, Phase
from diagnose.alerts.onset import Onset
from diagnose.findings import Severity
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.tables import FINDING_ACTIONS
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.counting import Counting
from tests.ui.reported_alerts import S, made_alert, tell, tell_log, tell_look
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import AGE_S
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.view_state import View, ViewState

NOW_NS = 1_790_000_000 * S
DAY_NS = 86_400 * S


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        yield store


def said(store: EmbeddedStore, search: str = "?view=findings-log", *, takes_actions: bool = False) -> str:
    parsed = parse_search(search)
    assert parsed.notes == ()
    reads = Reads(StoreReader(store), wall_s=lambda: NOW_NS / 1e9, settings=ReadSettings(takes_actions=takes_actions))
    drawn = draw_region("log", parsed.state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def act(store: EmbeddedStore, alert: Alert, action: str, *, text: str = "", until_ns: int = 0, number: int = 1) -> None:
    row = {"fingerprint": alert.fingerprint, "raised_ns": alert.raised_ns, "at_ns": NOW_NS - 9 * S + number}
    more = {"action_id": str(number), "action": action, "who": "Ada", "text": text, "until_ns": until_ns}
    rows = pa.Table.from_pylist([row | more], schema=FINDING_ACTIONS)
    insert(store, "finding_actions", rows, run_id=alert.run[0])


def put_live(store: EmbeddedStore, run_id: str) -> None:
    insert(store, "ranks", made("ranks", [{"started_ns": NOW_NS - DAY_NS}]), run_id=run_id)
    insert(store, "heartbeats", made("heartbeats", [{"at_ns": NOW_NS, "beat_ns": NOW_NS, "alive": 1}]), run_id=run_id)


def test_empty_log_explains_how_to_fill_it_and_an_empty_filter_result_how_to_remove_the_filter(
    store: EmbeddedStore,
) -> None:
    assert "rankscope collect --alerts" in said(store)
    assert "Show all findings" in said(store, "?view=findings-log&kind=nic-flap")


def test_each_filter_in_the_address_selects_the_matching_findings(store: EmbeddedStore) -> None:
    put_live(store, "gpt-live")
    onset = Onset(step=600, at_ns=NOW_NS - 3600 * S, is_exact=True)
    fires = made_alert("gpt-live", began_ns=NOW_NS - 60 * S, summary="fires", onset=onset)
    grave = made_alert("gpt-live", began_ns=NOW_NS - 50 * S, severity=Severity.CRITICAL, rank=7, summary="grave")
    quiet = made_alert("gpt-live", began_ns=NOW_NS - 40 * S, rank=3, summary="quiet")
    old = made_alert("old", began_ns=NOW_NS - 30 * DAY_NS, kind="nic-flap", phase=Phase.RESOLVED, summary="past")
    tell_log(store, [fires, grave, quiet, old], at_ns=NOW_NS - 29 * DAY_NS)
    act(store, grave, "acknowledge", text="<b>the fan</b>")
    act(store, quiet, "silence", until_ns=NOW_NS + 3600 * S, number=2)
    all_four = {"fires", "grave", "quiet", "past"}
    for conditions, expected in (
        ("", all_four),
        ("&find=GPT", all_four - {"past"}),
        ("&kind=nic-flap", {"past"}),
        ("&severity=critical", {"grave"}),
        ("&host=gpu-04", {"grave"}),
        ("&state=firing", all_four - {"past"}),
        ("&state=acknowledged", {"grave"}),
        ("&state=silenced", {"quiet"}),
        ("&state=resolved", {"past"}),
        ("&since=7d", all_four - {"past"}),
        ("&until=7d", {"past"}),
    ):
        page = said(store, f"?view=findings-log{conditions}")
        assert {summary for summary in all_four if f'"{summary}"' in page} == expected, conditions
    page = said(store, takes_actions=True)
    assert page.index('"quiet"') < page.index('"grave"') < page.index('"fires"') < page.index('"past"')
    for words in (
        "Ada acknowledged it: <b>the fan</b>",
        ", step 600",
        "?view=overview&run=gpt-live&attempt=0",
        "1 d 0 h",
    ):
        assert words in page
    assert page.count('"data-action": "silence"') == 4
    assert page.count('"data-action": "end-silence"') == 1
    assert page.count('"data-action": "acknowledge"') == 2


def test_a_finding_of_a_run_that_ended_is_not_shown_as_firing(store: EmbeddedStore) -> None:
    tell_log(store, [made_alert("gone", began_ns=NOW_NS - 60 * S)], at_ns=NOW_NS)
    page = said(store)
    assert '"run ended"' in page
    assert '"firing"' not in page


def test_each_page_of_ten_thousand_findings_needs_at_most_three_queries(store: EmbeddedStore) -> None:
    rows = [
        {
            "fingerprint": f"{number:016x}",
            "raised_ns": NOW_NS - number * S,
            "at_ns": NOW_NS - number * S,
            "state": state,
        }
        | {"kind": "compute-straggler", "severity": "warning", "hosts": "gpu-01", "summary": f"number {number}"}
        for number in range(10_000)
        for state in ("raised", "resolved")
    ]
    insert(store, "findings", made("findings", rows), run_id="many")
    reader = Counting(StoreReader(store))
    reads = Reads(reader, wall_s=lambda: NOW_NS / 1e9)
    PAGES[View.FINDINGS_LOG].freshness(ViewState(), reads)
    for number in (1, 2, 200):
        before = reader.asked.total()
        state = parse_search(f"?view=findings-log&page={number}").state
        drawn = draw_region("log", state, reads, by_clock=False)
        assert drawn is not None
        text = json.dumps(drawn.make())
        assert f"number {(number - 1) * 50}" in text
        assert f"number {number * 50 - 1}" in text
        assert f"{(number - 1) * 50 + 1:,} to {number * 50:,} of 10,000 findings" in text
        assert ("Newer" in text, "Older" in text) == (number > 1, number < 200)
        assert len(text) < 300_000
        assert reader.asked.total() - before <= 3
    assert "Newer" in said(store, "?view=findings-log&page=9999")


@pytest.mark.parametrize(
    ("view", "region", "badge"),
    [(View.FINDINGS_LOG, "log", '"silenced"'), (View.ALERTS, "firing", '"silenced until ')],
)
def test_a_page_with_the_newest_freshness_shows_the_newest_action(
    store: EmbeddedStore, view: View, region: str, badge: str
) -> None:
    """Otherwise the page would show the older state until something else changes."""
    put_live(store, "live")
    alert = made_alert("live", began_ns=NOW_NS - 60 * S)
    tell(store, alert, at_ns=NOW_NS)
    tell_look(store, "live", at_ns=NOW_NS)
    tell_log(store, [alert], at_ns=NOW_NS)
    act(store, alert, "note", text="heard")
    clock_s = [NOW_NS / 1e9 - AGE_S / 4]
    reads = Reads(StoreReader(store), wall_s=lambda: clock_s[0])
    state = ViewState(view=view)

    def shown() -> str:
        drawn = draw_region(region, state, reads, by_clock=False)
        assert drawn is not None
        return json.dumps(drawn.make())

    before = PAGES[view].freshness(state, reads)
    clock_s[0] = NOW_NS / 1e9  # answers of the freshness are too old now
    assert badge not in shown()
    act(store, alert, "silence", until_ns=NOW_NS + 3600 * S, number=2)
    for ages in (0.2, 0.9, 1.1):
        clock_s[0] = NOW_NS / 1e9 + ages * AGE_S
        is_new = PAGES[view].freshness(state, reads) != before
        assert is_new or ages < 1
        assert badge in shown() or not is_new


def test_filter_controls_set_the_address_and_return_to_the_first_page() -> None:
    state = parse_search("?view=findings-log&kind=nic-flap&page=7&find=gpt").state
    assert parse_search(state.search()).state == state
    changed = {"log-severity": "critical", "log-state": "silenced", "log-since": "7d", "log-host": "gpu-3"}
    after = after_controls(state, changed)
    assert after.search() == (
        "?view=findings-log&host=gpu-3&find=gpt&kind=nic-flap&severity=critical&since=7d&state=silenced"
    )
    assert after_controls(after, {"log-since": "soon", "log-kind": "all"}).search().count("since=7d") == 1
    assert parse_search("?view=findings-log&since=soon&page=0&kind=x").state == ViewState(view=View.FINDINGS_LOG)
