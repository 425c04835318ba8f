"""The apprise hook with a fake module `apprise`. That module has one service, which the tests control."""

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
    """The part of the class `apprise.Apprise` that the hook uses."""

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


def test_apprise_notification_has_title_type_and_body_of_the_notice(hook: Hook, services: Apprise) -> None:
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


def test_refused_apprise_notification_is_retried_and_its_error_hides_the_address(hook: Hook, services: Apprise) -> None:
    services.takes = False
    with pytest.raises(HookError, match="a service rejected the notification") as refused:
        hook.send([made_notice()])
    services.breaks = True
    with pytest.raises(HookError, match="a service rejected the notification") as broken:
        hook.send([made_notice()])
    assert refused.value.again
    assert broken.value.again
    assert SECRET not in str(broken.value)


def test_hanging_apprise_service_times_out_and_is_not_called_a_second_time(services: Apprise) -> None:
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


def test_invalid_apprise_address_is_reported_without_the_address(
    services: Apprise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APPRISE_URLS", "s3cr3t")
    with pytest.raises(UsageError, match="does not know an address") as caught:
        make_hook("chat", {"type": "apprise", "urls_env": "APPRISE_URLS"})
    assert "s3cr3t" not in str(caught.value)
