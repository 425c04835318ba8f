"""The alerts page: what it shows of the reports of a watcher, and that no report can break it."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

import pytest

from diagnose.alerts.alert import Phase, alert_text
from diagnose.alerts.onset import Onset
from diagnose.findings import Severity
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.memory_store import empty, memory_store
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


def test_page_without_a_watcher_explains_how_to_start_one(store: EmbeddedStore) -> None:
    assert "rankscope collect --alerts" in said(store, "watcher")
    assert said(store, "firing") == "null"


def test_firing_alert_is_shown_with_host_cost_view_link_and_silence_command(store: EmbeddedStore) -> None:
    tell(store, made_alert("gpt", began_ns=NOW_NS - 300 * S), at_ns=NOW_NS)
    tell_look(store, "gpt", at_ns=NOW_NS)
    firing = said(store, "firing")
    for words in ("gpu-03", "12.5 s lost", "(5 min 5 s)", "overview&run=gpt&attempt=0&steps=10-39&rank=5", "amtool"):
        assert words in firing
    assert "1 firing, 0 pending. The watcher checks 1 run now" in said(store, "watcher")


def put_run(store: EmbeddedStore, run_id: str, *, attempt: int = 0, ended: int = 0, alive: int = 1) -> None:
    """A run of one rank that sent a heartbeat now."""
    rank = made("ranks", [{"started_ns": NOW_NS - 600 * S}])
    beat = made("heartbeats", [{"at_ns": NOW_NS, "beat_ns": NOW_NS, "alive": alive, "ended": ended}])
    insert(store, "ranks", rank, run_id=run_id, attempt=attempt)
    insert(store, "heartbeats", beat, run_id=run_id, attempt=attempt)


def test_alerts_of_live_runs_come_first_then_the_worst_and_show_the_time_since_onset(store: EmbeddedStore) -> None:
    put_run(store, "live")
    began_ns = NOW_NS - 60 * S
    onset = Onset(step=600, at_ns=NOW_NS - 660 * S, is_exact=True)
    tell(store, made_alert("silent", began_ns=began_ns, severity=Severity.CRITICAL, summary="of nobody"), at_ns=NOW_NS)
    tell(store, made_alert("live", began_ns=began_ns, rank=1, summary="mild", onset=onset), at_ns=NOW_NS)
    tell(store, made_alert("live", began_ns=began_ns, severity=Severity.CRITICAL, summary="grave"), at_ns=NOW_NS)
    firing = said(store, "firing")
    assert firing.index("grave") < firing.index("mild") < firing.index("of nobody")
    assert re.search(r"step 600, [-\d: ]+ \(11 min\)", firing)
    assert "?view=overview&run=live&attempt=0" in firing


def test_alerts_of_an_ended_run_stop_firing_except_those_that_explain_a_death(store: EmbeddedStore) -> None:
    put_run(store, "ended", ended=1)
    put_run(store, "died", alive=0)
    put_run(store, "again", attempt=1)
    for run_id in ("ended", "died", "again"):
        tell(store, made_alert(run_id, began_ns=NOW_NS - 9 * S, summary=f"slow in {run_id}"), at_ns=NOW_NS)
    dead = made_alert("died", began_ns=NOW_NS - 9 * S, kind="dead-rank", summary="dead in died")
    tell(store, dead, at_ns=NOW_NS)
    firing, past = said(store, "firing"), said(store, "past")
    assert "dead in died" in firing
    for run_id in ("ended", "died", "again"):
        assert f"slow in {run_id}" not in firing
        assert f"slow in {run_id}" in past
    assert past.count("the run has ended; the watcher has not reported since") == 3
    assert past.count("12.5 s lost") == 3
    assert "so far" in firing
    assert "so far" not in past
    tell_look(store, "ended", at_ns=NOW_NS + S)
    assert said(store, "past").count("the watcher has not reported since") == 2


def test_alerts_are_separated_by_phase_and_filtered_by_run(store: EmbeddedStore) -> None:
    for run_id, phase in (("a", Phase.FIRING), ("b", Phase.PENDING), ("c", Phase.RESOLVED)):
        tell(store, made_alert(run_id, began_ns=NOW_NS - 300 * S, phase=phase, summary=f"of {run_id}"), at_ns=NOW_NS)
    assert "of a" in said(store, "firing")
    assert "of b" in said(store, "pending")
    assert "of c" in said(store, "past")
    assert "No alert is firing" in said(store, "firing", run="b")
    assert "of c" not in said(store, "past", run="a")
    assert "Run b: 0 firing, 1 pending. " in said(store, "watcher", run="b")


def test_worst_alert_comes_first_and_a_suppressed_alert_names_its_explanation(store: EmbeddedStore) -> None:
    mild = made_alert("a", began_ns=NOW_NS, rank=1, summary="mild")
    tell(store, replace(mild, suppressed_by="0123456789abcdef"), at_ns=NOW_NS)
    tell(store, made_alert("a", began_ns=NOW_NS, severity=Severity.CRITICAL, summary="grave"), at_ns=NOW_NS)
    firing = said(store, "firing")
    assert firing.index("grave") < firing.index("mild")
    assert "explained by 0123456789abcdef" in firing


def test_watcher_that_no_longer_reports_is_shown(store: EmbeddedStore) -> None:
    tell(store, made_alert("gpt", began_ns=NOW_NS), at_ns=NOW_NS)
    assert "last reported" not in said(store, "watcher")
    assert "last reported" not in said(store, "watcher", later_s=600)  # no run is live
    grid = {"dp_size": 1, "pp_size": 1, "tp_size": 1}
    insert(store, "ranks", made("ranks", [grid | {"started_ns": NOW_NS + 590 * S}]), run_id="another")
    assert "The watcher last reported 10 min ago" in said(store, "watcher", later_s=600)
    assert "the alert may be over" in said(store, "firing", later_s=600)


@each_case(
    "change",
    [
        {"began_ns": 10**30},
        {"began_ns": "yesterday"},
        {"raised_ns": []},
        {"onset": {"step": -1, "at_ns": 0, "is_exact": True}},
        {"onset": {"step": float("inf"), "at_ns": 0, "is_exact": True}},
        {"fingerprint": "another"},
        {"labels": {"alertname": "x", "run_id": "stranger", "attempt": "0"}},
        {"labels": {"alertname": 5, "run_id": "gpt", "attempt": "0"}},
        {"account": {"severity": "warning", "summary": "", "next_step": "", "seconds_lost": "much"}},
    ],
)
def test_unreadable_alert_is_counted_and_the_page_is_still_drawn(
    store: EmbeddedStore, change: dict[str, object]
) -> None:
    empty(store)
    alert = made_alert("gpt", began_ns=NOW_NS)
    tell(store, alert, at_ns=NOW_NS, body=json.dumps(json.loads(alert_text(alert)) | change))
    tell_look(store, "gpt", at_ns=NOW_NS)
    assert "1 alert cannot be read here" in said(store, "watcher")
    assert "No alert is firing" in said(store, "firing")


def test_silence_command_has_one_shell_word_per_label_for_any_run_name() -> None:
    run_id = "a\"; rm -rf ~; '$(date)' \\"
    words = shlex.split(amtool_command(made_alert(run_id, began_ns=0)))
    assert words[:3] == ["amtool", "silence", "add"]
    escaped = run_id.replace("\\", "\\\\").replace('"', '\\"')
    assert f'run_id="{escaped}"' in words
    assert 'rank="5"' in words
    assert 'device=""' in words
    assert not any(word.startswith("severity") for word in words)
    assert amtool_command(made_alert("a\x1b[2J", began_ns=0)) == ""
