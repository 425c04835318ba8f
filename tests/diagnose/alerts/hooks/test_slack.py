"""Slack: one message per batch, within the limits of Slack. It mentions no person by accident."""

import pytest

from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.hooks.slack import SlackHook, slack_message
from diagnose.alerts.notice import Notice, Status
from tests.diagnose.alerts.hooks.http_receiver import HttpReceiver, answers
from tests.diagnose.alerts.made_notice import made_notice
from tests.each_case import each_case


@pytest.fixture
def table(receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("SLACK_URL", f"{receiver.url}/services/T0/B0/s3cr3ts3cr3t")
    return {"type": "slack", "url_env": "SLACK_URL"}


class ManualTime:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def texts(*notices: Notice) -> list[str]:
    return [block["text"]["text"] for block in slack_message(notices)["blocks"]]  # type: ignore[attr-defined]


def test_slack_hook_sends_several_notices_as_one_message(receiver: HttpReceiver, table: dict[str, object]) -> None:
    over = made_notice(labels={"rank": "6"}, status=Status.RESOLVED, summary="rank 6 is back")
    make_hook("chat", table).send([made_notice(), over])
    (request,) = receiver.requests
    assert request.path == "/services/T0/B0/s3cr3ts3cr3t"
    assert [block["type"] for block in request.body["blocks"]] == ["section"] * 3
    assert request.body["text"].splitlines() == [
        "rankscope: 1 firing, 1 resolved (monday)",
        f":red_circle: {made_notice().summary}",
        ":white_check_mark: rank 6 is back",
    ]


def test_slack_message_contains_cost_next_step_details_and_dashboard_link() -> None:
    _, paragraph = texts(made_notice())
    assert paragraph.splitlines()[0] == f":red_circle: {made_notice().summary}"
    for words in ("12.7 s lost so far", made_notice().next_step, "victims: ranks 0 to 4, 6, 7"):
        assert words in paragraph
    assert paragraph.endswith("<http://127.0.0.1:8719/hang?run=monday&step=40|dashboard>")


def test_slack_message_of_a_repeated_notice_says_still() -> None:
    assert "still: rank 5" in texts(made_notice(repeated=True))[1]


def test_slack_message_escapes_mentions_in_names_and_texts() -> None:
    odd = "<!channel> & <@U123>"
    message = slack_message([made_notice(summary=odd, cost=odd, details={odd: odd}, labels={"run_id": odd})])
    assert "<!" not in str(message)
    assert "<@" not in str(message)
    assert "&lt;!channel&gt; &amp; &lt;@U123&gt;" in str(message["text"])


@each_case("count", [1, 2, 10, 20])
@each_case("letter", ["x", "&"])
def test_slack_message_stays_within_the_size_limits(count: int, letter: str) -> None:
    long = letter * 5000
    details = {f"{each} {long}": long for each in range(50)}
    notices = [made_notice(summary=long, cost=long, next_step=long, details=details)] * count
    told = texts(*notices)
    assert len(told) == count + 1 <= 50
    assert all(len(text) <= 3000 for text in told)
    assert sum(len(text) for text in told) < 11_000
    assert len(str(slack_message(notices)["text"])) <= 3000
    assert all("|dashboard>" in text for text in told[1:])
    assert not any(entity in text for text in told for entity in ("&\u2026", "&a\u2026", "&am\u2026", "&amp\u2026"))


def test_slack_batch_has_at_most_20_notices(table: dict[str, object]) -> None:
    assert make_hook("chat", table).batch <= 20


def test_slack_hook_sends_at_most_one_message_per_second(receiver: HttpReceiver, table: dict[str, object]) -> None:
    time = ManualTime()
    hook = SlackHook("chat", table, now_s=lambda: time.now_s, sleep=time.sleep)
    hook.send([made_notice()])
    assert time.slept == []
    time.now_s += 0.25
    hook.send([made_notice()])
    assert time.slept == [0.75]
    time.now_s += 5
    hook.send([made_notice()])
    assert time.slept == [0.75]
    assert len(receiver.requests) == 3


def test_refused_slack_message_also_counts_for_the_rate_limit(receiver: HttpReceiver, table: dict[str, object]) -> None:
    time = ManualTime()
    hook = SlackHook("chat", table, now_s=lambda: time.now_s, sleep=time.sleep)
    receiver.behaviour = answers(429, Retry_After="30")
    for _ in range(2):
        with pytest.raises(Exception, match="status 429") as caught:
            hook.send([made_notice()])
        assert caught.value.after_s == 30  # type: ignore[attr-defined]
    assert time.slept == [1.0]
