"""Actions on findings: who may take one, which finding it applies to, and what is stored."""

import os
import time
from typing import Any

import httpx
import pytest

from telemetry.collector.finding_actions import ActionLog
from telemetry.errors import UsageError
from telemetry.finding_log import MAX_TEXT, Action
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import FindingActions, FindingDecisions, Findings
from telemetry.wire.client import CollectorClient
from telemetry.wire.finding_action import FindingAction
from tests.telemetry.made_rows import made, of_run
from tests.telemetry.served import collecting

TOKENS = {"token": "all", "write_token": "in", "read_token": "out"}
NAME = "ab" * 8
NOTE = {"fingerprint": NAME, "action": "note", "who": "Ada", "text": "the fan is replaced"}
PATH = "/v1/finding-actions"


@pytest.fixture(autouse=True)
def _nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
        monkeypatch.delenv(name)


def raise_finding(client: CollectorClient, *, raised_ns: int = 5, **changes: Any) -> Any:
    row = {"fingerprint": NAME, "raised_ns": raised_ns, "at_ns": raised_ns, "state": "raised", "onset_step": -1}
    return client.post("findings", of_run(made("findings", [{**row, **changes}]), run_id="gpt", attempt=2))


def stored(store: EmbeddedStore) -> list[dict[str, Any]]:
    return StoreReader(store).read(FindingActions()).to_pylist()


def test_finding_action_requires_a_token_that_may_write_and_no_token_is_logged(
    embedded: EmbeddedStore, capfd: pytest.CaptureFixture[str]
) -> None:
    with collecting(embedded, **TOKENS) as client, httpx.Client(base_url=client.url, verify=False) as http:
        raise_finding(client)
        statuses = {
            token: http.post(PATH, json=NOTE, headers={"Authorization": f"Bearer {token}"}).status_code
            for token in ("wrong", "out", "in", "all")
        }
        foreign = http.post(PATH, json=NOTE, headers={"Authorization": "Bearer all", "Sec-Fetch-Site": "cross-site"})
        form = http.post(PATH, data=NOTE, headers={"Authorization": "Bearer all"})
    assert statuses == {"wrong": 401, "out": 403, "in": 200, "all": 200}
    assert (foreign.status_code, form.status_code) == (403, 415)
    assert [(row["run_id"], row["attempt"], row["raised_ns"], row["who"]) for row in stored(embedded)] == [
        ("gpt", 2, 5, "Ada"),
        ("gpt", 2, 5, "Ada"),
    ]
    said = capfd.readouterr().err
    assert f"note of finding {NAME} of run gpt by 'Ada'" in said
    assert "Bearer" not in said


def test_action_applies_to_the_newest_finding_of_the_fingerprint_or_to_the_named_one(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client:
        raise_finding(client, raised_ns=5)
        raise_finding(client, raised_ns=9)
        client.act(FindingAction(fingerprint=NAME, action=Action.ACKNOWLEDGE, who="Ada"))
        client.act(FindingAction(fingerprint=NAME, raised_ns=5, action=Action.ACKNOWLEDGE, who="Ada"))
        for unknown in ({"fingerprint": "cd" * 8}, {"fingerprint": NAME, "raised_ns": 7}):
            with pytest.raises(UsageError, match="no finding"):
                client.act(FindingAction(**unknown, action=Action.ACKNOWLEDGE, who="Ada"))
    assert sorted(row["raised_ns"] for row in stored(embedded)) == [5, 9]


def test_the_last_decision_holds_also_if_the_clock_of_the_collector_was_set_back(embedded: EmbeddedStore) -> None:
    with collecting(embedded) as client:
        raise_finding(client)
    reader = StoreReader(embedded)
    silence = FindingAction(fingerprint=NAME, action=Action.SILENCE, who="Ada", until_ns=10**18 + 10**12)
    ActionLog(store=embedded, reader=reader, clock_ns=lambda: 10**18).accept(silence)
    end = FindingAction(fingerprint=NAME, action=Action.END_SILENCE, who="Ada")
    ActionLog(store=embedded, reader=reader, clock_ns=lambda: 10**18 - 3600 * 10**9).accept(end)
    assert reader.read(FindingDecisions())["action"].to_pylist() == ["end-silence"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fingerprint": "x"}, "fingerprint"),
        ({"action": "delete"}, "action"),
        ({"who": ""}, "who"),
        ({"who": " \t"}, "who"),
        ({"who": "x" * 65}, "who"),
        ({"text": ""}, "a note needs a text"),
        ({"text": "x" * (MAX_TEXT + 1)}, "text"),
        ({"action": "silence"}, "the end of a silence"),
        ({"action": "silence", "until_ns": 1}, "the end of a silence"),
        ({"action": "silence", "until_ns": 2**62}, "the end of a silence"),
    ],
)
def test_invalid_finding_action_is_refused_with_a_reason(
    embedded: EmbeddedStore, change: dict[str, Any], why: str
) -> None:
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        raise_finding(client)
        answer = http.post(PATH, json={**NOTE, **change})
    assert answer.status_code == 400
    assert why in answer.json()["error"]
    assert stored(embedded) == []


def test_texts_of_an_action_are_stored_as_one_printable_line_and_numbers_may_be_text(embedded: EmbeddedStore) -> None:
    until_ns = time.time_ns() + 3600 * 10**9
    body = {**NOTE, "action": "silence", "who": "A\x1b[2J", "text": "two\nlines \u202e", "until_ns": str(until_ns)}
    with collecting(embedded) as client, httpx.Client(base_url=client.url, verify=False) as http:
        raise_finding(client)
        assert http.post(PATH, json={**body, "raised_ns": "5"}).status_code == 200
    (row,) = stored(embedded)
    assert (row["who"], row["text"], row["until_ns"]) == ("A\\x1b[2J", "two lines \\u202e", until_ns)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fingerprint": "x"}, "fingerprint"),
        ({"state": "x"}, "change of a finding"),
        ({"seconds_lost": float("nan")}, "cost"),
        ({"summary": "x" * (MAX_TEXT + 1)}, "summary"),
        ({"at_ns": 2**62}, "days in the future"),
    ],
)
def test_invalid_row_of_the_finding_log_is_refused(embedded: EmbeddedStore, change: dict[str, Any], why: str) -> None:
    with collecting(embedded) as client, pytest.raises(Exception, match=why):
        raise_finding(client, **change)
    assert StoreReader(embedded).read(Findings()).num_rows == 0
