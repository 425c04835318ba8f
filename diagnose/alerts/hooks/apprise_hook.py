"""Hook for all services that apprise supports, with a title and a text. Needs the extra ``alerts``."""

import importlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.keys import ResendSeconds, Seconds, read_keys
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity
from telemetry.errors import UsageError
from telemetry.printable import one_line

_TYPES = {Severity.CRITICAL: "failure", Severity.WARNING: "warning", Severity.INFO: "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AppriseKeys:
    """``[hooks.NAME]`` with ``type = "apprise"``."""

    urls: SecretStr
    """Addresses in apprise's format, separated by spaces."""
    resend_s: ResendSeconds = 0.0
    timeout_s: Seconds = 30.0


class AppriseHook:
    """Sends to all its services. If one fails, all get the notice again. So use a separate hook for each service."""

    batch = 1

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        keys = read_keys(AppriseKeys, name, table)
        self.name = name
        self.resend_s = keys.resend_s
        self._timeout_s = keys.timeout_s
        self._services = _services(name, keys.urls)
        self._thread: threading.Thread | None = None

    def send(self, notices: Sequence[Notice]) -> None:
        if self._thread and self._thread.is_alive():
            raise HookError(f"hook {self.name}: a service is still sending the last notification", again=True)
        accepted: list[bool] = []
        # The timeouts of services apply only between two bytes, so a thread limits the total time.
        self._thread = threading.Thread(target=self._notify, args=(tuple(notices), accepted), daemon=True)
        self._thread.start()
        self._thread.join(self._timeout_s)
        if self._thread.is_alive():
            raise HookError(f"hook {self.name}: no answer within {self._timeout_s:g} s", again=True)
        if accepted != [True] * len(notices):
            raise HookError(f"hook {self.name}: a service rejected the notification", again=True)

    def _notify(self, notices: Sequence[Notice], accepted: list[bool]) -> None:
        # Errors are not shown: their messages may contain an address with secrets.
        with suppress(Exception):
            for notice in notices:
                title, text, notify_type = _title_and_text(notice)
                accepted.append(bool(self._services.notify(title=title, body=text, notify_type=notify_type)))


def _title_and_text(notice: Notice) -> tuple[str, str, str]:
    """Title, text and type of the message."""
    over = notice.status is Status.RESOLVED
    title = f"{'resolved: ' if over else ''}{notice.labels.get('alertname', 'alert')}"
    details = [f"{name}: {text}" for name, text in notice.details.items()]
    lines = [notice.summary, notice.cost, notice.next_step, *details, notice.link]
    return (
        one_line(title, 200),
        "\n".join(line for line in lines if line),
        "success" if over else _TYPES[notice.severity],
    )


def _services(name: str, urls: SecretStr) -> Any:
    try:
        apprise: Any = importlib.import_module("apprise")
    except ImportError:
        raise UsageError(f"hook {name}: apprise is not installed", hint="pip install 'rankscope[alerts]'") from None
    services = apprise.Apprise()
    if not all(services.add(url) for url in urls.get_secret_value().split()):
        raise UsageError(f"hook {name}: apprise does not know an address in urls", hint="try it: apprise --dry-run URL")
    return services
