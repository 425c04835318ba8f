"""Which hooks there are: ours, and those that installed packages bring (entry points ``rankscope.alert_hooks``)."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from diagnose.alerts.hooks.alertmanager import AlertmanagerHook
from diagnose.alerts.hooks.apprise_hook import AppriseHook
from diagnose.alerts.hooks.command import CommandHook
from diagnose.alerts.hooks.interface import Hook
from diagnose.alerts.hooks.log import LogHook
from diagnose.alerts.hooks.pagerduty import PagerDutyHook
from diagnose.alerts.hooks.slack import SlackHook
from diagnose.alerts.hooks.webhook import WebhookHook
from telemetry.errors import UsageError

GROUP = "rankscope.alert_hooks"

HookMaker = Callable[[str, Mapping[str, object]], Hook]
"""From the hook's name and its table. Raises ``UsageError`` for what is wrong in the table."""

OURS: Mapping[str, HookMaker] = {
    "alertmanager": AlertmanagerHook,
    "webhook": WebhookHook,
    "pagerduty": PagerDutyHook,
    "slack": SlackHook,
    "command": CommandHook,
    "log": LogHook,
    "apprise": AppriseHook,
}


def make_hook(name: str, table: Mapping[str, object]) -> Hook:
    """The hook that ``[hooks.NAME]`` describes.

    Raises:
        UsageError: no such type, a key that is unknown, wrong or missing, or a package whose hook cannot be loaded.
    """
    wanted = table.get("type")
    if not isinstance(wanted, str):
        raise UsageError(
            f"hook {name} has no type", hint=f'add a type, such as type = "slack". Types: {", ".join(OURS)}'
        )
    if wanted in OURS:
        return OURS[wanted](name, table)
    theirs = {point.name: point for point in entry_points(group=GROUP)}
    if wanted not in theirs:
        close = get_close_matches(wanted, [*OURS, *theirs], n=1)
        hint = f"did you mean {close[0]}?" if close else f"types: {', '.join([*OURS, *theirs])}"
        raise UsageError(f"hook {name}: no type {wanted!r}", hint=hint)
    return _made(name, table, theirs[wanted])


def _made(name: str, table: Mapping[str, object], point: EntryPoint) -> Hook:
    """A package's hook. Whatever it raises is told by its name: a broken one is not ours to mend."""
    try:
        hook: Hook = point.load()(name, table)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"hook {name}: entry point {point.name} = {point.value} cannot be loaded: {type(error).__name__}: {error}",
            hint="update or remove the package that provides it",
        ) from error
    lacks = [part for part in ("name", "resend_s", "batch", "send") if not hasattr(hook, part)]
    if lacks:
        raise UsageError(
            f"hook {name}: entry point {point.name} = {point.value} is not a hook: it lacks {', '.join(lacks)}",
            hint="see docs/guides/alert-hooks.md",
        )
    return hook
