"""Hook for Slack's incoming webhooks. Notices that are sent at the same time are one message.

A webhook cannot change or delete a message, so a resolved alert is a new message. Slack accepts about one message per
second.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import pydantic
from pydantic import SecretStr

from diagnose.alerts.hooks.keys import ResendSeconds, Seconds, read_keys
from diagnose.alerts.hooks.post import Receiver
from diagnose.alerts.hooks.shape import link_of
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity
from telemetry.printable import one_line

MAX_TEXT = 3000
"""Largest length of a block."""
MAX_ALL_TEXT = 8000
"""Largest length of all blocks together. Slack rejects more than about 11,000 characters (undocumented)."""
MAX_BATCH = 20
"""Each notice is a block. Slack accepts 50 blocks, but then they would be too short to be useful."""
BETWEEN_S = 1.0
_SIGNS = {Severity.CRITICAL: ":red_circle:", Severity.WARNING: ":large_yellow_circle:", Severity.INFO: ":white_circle:"}
_OVER = ":white_check_mark:"
_HALF_ENTITY = re.compile(r"&[a-z]{0,3}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackKeys:
    """``[hooks.NAME]`` with ``type = "slack"``."""

    url: SecretStr
    """A secret: everyone who knows it can post."""
    resend_s: ResendSeconds = 0.0
    batch: Annotated[int, pydantic.Field(ge=1, le=MAX_BATCH)] = 10
    timeout_s: Annotated[Seconds, pydantic.Field(gt=BETWEEN_S)] = 10.0


class SlackHook:
    """Posts messages, at most one per second.

    Args:
        now_s, sleep: the monotonic clock, and a function that waits.
    """

    def __init__(
        self,
        name: str,
        table: Mapping[str, object],
        *,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        keys = read_keys(SlackKeys, name, table)
        self.name = name
        self.resend_s = keys.resend_s
        self.batch = keys.batch
        self._now_s, self._sleep = now_s, sleep
        self._free_at_s = now_s()
        self._receiver = Receiver(name, keys.url, timeout_s=keys.timeout_s - BETWEEN_S)

    def send(self, notices: Sequence[Notice]) -> None:
        wait_s = self._free_at_s - self._now_s()
        if wait_s > 0:
            self._sleep(wait_s)
        try:
            self._receiver.post(slack_message(notices))
        finally:
            self._free_at_s = self._now_s() + BETWEEN_S


def slack_message(notices: Sequence[Notice]) -> dict[str, object]:
    """``notices`` as one message: a heading and a section for each. ``text`` is shown if blocks cannot be shown."""
    heading = _heading(notices)
    lines = [heading, *(_first_line(notice) for notice in notices)]
    limit = min(MAX_TEXT, MAX_ALL_TEXT // len(notices))
    blocks = [_section(f"*{heading}*"), *(_section(_paragraph(notice, limit)) for notice in notices)]
    return {"text": _fitting("\n".join(lines), MAX_TEXT), "blocks": blocks}


def _heading(notices: Sequence[Notice]) -> str:
    runs = sorted({notice.labels.get("run_id", "") for notice in notices} - {""})
    firing = sum(notice.status is Status.FIRING for notice in notices)
    counts = {"firing": firing, "resolved": len(notices) - firing}
    counted = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"rankscope: {counted} ({_escaped(one_line(', '.join(runs), 200))})" if runs else f"rankscope: {counted}"


def _first_line(notice: Notice) -> str:
    over = notice.status is Status.RESOLVED
    prefix = "still: " if notice.repeated and not over else ""
    return f"{_OVER if over else _SIGNS[notice.severity]} {prefix}{_escaped(one_line(notice.summary, 300))}"


def _paragraph(notice: Notice, limit: int) -> str:
    lines = [_first_line(notice)]
    lines += [_escaped(one_line(text, 300)) for text in (notice.cost, notice.next_step) if text]
    lines += [
        f"{_escaped(one_line(name, 40))}: {_escaped(one_line(text, 200))}" for name, text in notice.details.items()
    ]
    link = link_of(notice).replace("|", "%7C").replace(">", "%3E").replace("<", "%3C")
    # The link is last and complete. Only the text before it is shortened.
    end = f"\n<{link}|dashboard>" if link and len(link) < limit // 2 else ""
    return _fitting("\n".join(lines), limit - len(end)) + end


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def _escaped(text: str) -> str:
    """Text escaped for Slack: a host with the name ``<!channel>`` must not notify a channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _fitting(text: str, limit: int) -> str:
    return text if len(text) <= limit else _HALF_ENTITY.sub("", text[: limit - 1]) + "\N{HORIZONTAL ELLIPSIS}"
