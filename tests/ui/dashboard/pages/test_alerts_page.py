"""The page of alerts: what it shows of what a watcher told, and that nothing told can break it."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace

import pytest

from diagnose.alerts.alert import Phase, alert_text
from diagnose.findings import Severity
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.reported_alerts import S, made_alert, tell, tell_look
from ui.dashboard.data import Reads
from ui.dashboard.pages.alerts.page import amtool_command
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.view_state import View, ViewState

NOW_NS = 1_790_000_000 * S


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        yield store


def said(store: EmbeddedStore, region: str, *, run: str = "", later_s: float = 5) -> str:
    reads = Reads(StoreReader(store), wall_s=lambda: NOW_NS / 1e9 + later_s)
    drawn = draw_region(region, ViewState(view=View.ALERTS, run=run), reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def test_without_a_watcher_the_page_says_how_to_start_one(store: EmbeddedStore) -> None:
    assert "rankscope collect --alerts" in said(store, "watcher")
    assert said(store, "firing") == "null"


def test_what_fires_is_told_with_its_place_cost_view_and_silence(store: EmbeddedStore) -> None:
    tell(store, made_alert("gpt", began_ns=NOW_NS - 300 * S), at_ns=NOW_NS)
    tell_look(store, "gpt", at_ns=NOW_NS)
    firing = said(store, "firing")
    for words in ("gpu-03", "12.5 s lost", "(5 min)", "view=overview&run=gpt&attempt=0&steps=10-39&rank=5", "amtool"):
        assert words in firing
    assert "1 firing, 0 pending. The watcher checks 1 run now" in said(store, "watcher")


def test_phases_stand_apart_and_a_run_shows_its_own(store: EmbeddedStore) -> None:
    for run_id, phase in (("a", Phase.FIRING), ("b", Phase.PENDING), ("c", Phase.RESOLVED)):
        tell(store, made_alert(run_id, began_ns=NOW_NS - 300 * S, phase=phase, summary=f"of {run_id}"), at_ns=NOW_NS)
    assert "of a" in said(store, "firing")
    assert "of b" in said(store, "pending")
    assert "of c" in said(store, "past")
    assert "No alert is firing" in said(store, "firing", run="b")
    assert "of c" not in said(store, "past", run="a")


def test_the_worst_comes_first_and_an_effect_says_what_explains_it(store: EmbeddedStore) -> None:
    mild = made_alert("a", began_ns=NOW_NS, rank=1, summary="mild")
    tell(store, replace(mild, suppressed_by="0123456789abcdef"), at_ns=NOW_NS)
    tell(store, made_alert("a", began_ns=NOW_NS, severity=Severity.CRITICAL, summary="grave"), at_ns=NOW_NS)
    firing = said(store, "firing")
    assert firing.index("grave") < firing.index("mild")
    assert "explained by 0123456789abcdef" in firing


def test_a_watcher_that_fell_silent_is_told(store: EmbeddedStore) -> None:
    tell(store, made_alert("gpt", began_ns=NOW_NS), at_ns=NOW_NS)
    assert "last reported" not in said(store, "watcher")
    assert "last reported" not in said(store, "watcher", later_s=600)  # no run is at work
    grid = {"dp_size": 1, "pp_size": 1, "tp_size": 1}
    insert(store, "ranks", made("ranks", [grid | {"started_ns": NOW_NS + 590 * S}]), run_id="another")
    assert "The watcher last reported 10 min ago" in said(store, "watcher", later_s=600)
    assert "the alert may be over" in said(store, "firing", later_s=600)


@pytest.mark.parametrize(
    "change",
    [
        {"began_ns": 10**30},
        {"began_ns": "yesterday"},
        {"fingerprint": "another"},
        {"labels": {"alertname": "x", "run_id": "stranger", "attempt": "0"}},
        {"labels": {"alertname": 5, "run_id": "gpt", "attempt": "0"}},
        {"account": {"severity": "warning", "summary": "", "next_step": "", "seconds_lost": "much"}},
    ],
)
def test_an_alert_that_cannot_be_read_is_counted_and_breaks_nothing(
    store: EmbeddedStore, change: dict[str, object]
) -> None:
    alert = made_alert("gpt", began_ns=NOW_NS)
    tell(store, alert, at_ns=NOW_NS, body=json.dumps(json.loads(alert_text(alert)) | change))
    tell_look(store, "gpt", at_ns=NOW_NS)
    assert "1 alert cannot be read here" in said(store, "watcher")
    assert "No alert is firing" in said(store, "firing")


def test_a_silence_is_one_word_a_label_whatever_a_run_is_called() -> None:
    run_id = "a\"; rm -rf ~; '$(date)' \\"
    words = shlex.split(amtool_command(made_alert(run_id, began_ns=0)))
    assert words[:3] == ["amtool", "silence", "add"]
    escaped = run_id.replace("\\", "\\\\").replace('"', '\\"')
    assert f'run_id="{escaped}"' in words
    assert 'rank="5"' in words
    assert 'device=""' in words
    assert not any(word.startswith("severity") for word in words)
    assert amtool_command(made_alert("a\x1b[2J", began_ns=0)) == ""
