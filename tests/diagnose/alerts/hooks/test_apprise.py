"""Apprise: its services are another's; here stands a module of its name that has but one, which does as it is told."""

import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.notice import Status
from telemetry.errors import UsageError
from tests.diagnose.alerts.made_notice import made_notice

SECRET = "tgram://s3cr3t"


class Apprise:
    """The part of its class that the hook uses."""

    def __init__(self) -> None:
        self.told: list[dict[str, str]] = []
        self.takes = True
        self.breaks = False
        self.free = threading.Event()
        self.free.set()

    def add(self, url: str) -> bool:
        return "://" in url

    def notify(self, **words: str) -> bool:
        self.free.wait()
        if self.breaks:
            raise ValueError(SECRET)
        self.told.append(words)
        return self.takes


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Apprise()
    module = ModuleType("apprise")
    module.Apprise = lambda: made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "apprise", module)
    monkeypatch.setenv("APPRISE_URLS", f"{SECRET} json://127.0.0.1")
    return made


@pytest.fixture
def hook(services: Apprise) -> Hook:
    return make_hook("chat", {"type": "apprise", "urls_env": "APPRISE_URLS"})


def test_a_notice_is_title_and_text(hook: Hook, services: Apprise) -> None:
    hook.send([made_notice()])
    hook.send([made_notice(status=Status.RESOLVED)])
    firing, over = services.told
    assert (firing["title"], firing["notify_type"]) == ("hung-collective", "failure")
    assert (over["title"], over["notify_type"]) == ("resolved: hung-collective", "success")
    notice = made_notice()
    assert firing["body"].splitlines() == [
        notice.summary,
        notice.cost,
        notice.next_step,
        "victims: ranks 0 to 4, 6, 7",
        "steps: 40",
        notice.link,
    ]


def test_what_is_refused_is_told_again_and_no_address_with_it(hook: Hook, services: Apprise) -> None:
    services.takes = False
    with pytest.raises(HookError, match="a service rejected the notification") as refused:
        hook.send([made_notice()])
    services.breaks = True
    with pytest.raises(HookError, match="a service rejected the notification") as broken:
        hook.send([made_notice()])
    assert refused.value.again
    assert broken.value.again
    assert SECRET not in str(broken.value)


def test_a_service_that_hangs_holds_nobody_and_is_not_asked_twice(services: Apprise) -> None:
    hook = make_hook("chat", {"type": "apprise", "urls_env": "APPRISE_URLS", "timeout_s": 0.2})
    services.free.clear()
    try:
        with pytest.raises(HookError, match=r"no answer within 0.2 s"):
            hook.send([made_notice()])
        with pytest.raises(HookError, match="still sending the last notification"):
            hook.send([made_notice()])
    finally:
        services.free.set()
    assert len(services.told) <= 1


def test_an_address_that_is_none_is_told_without_it(services: Apprise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APPRISE_URLS", "s3cr3t")
    with pytest.raises(UsageError, match="does not know an address") as caught:
        make_hook("chat", {"type": "apprise", "urls_env": "APPRISE_URLS"})
    assert "s3cr3t" not in str(caught.value)
