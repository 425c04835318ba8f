"""The hooks of rankscope, and those of installed packages (entry points ``rankscope.alert_hooks``)."""

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
"""Creates a hook from its name and its table. Raises ``UsageError`` if the table is invalid."""

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
        UsageError: the type is unknown, a key is unknown, invalid or missing, or the hook of a package does not load.
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
        raise UsageError(f"hook {name}: unknown type {wanted!r}", hint=hint)
    return _load_hook(name, table, theirs[wanted])


def _load_hook(name: str, table: Mapping[str, object], point: EntryPoint) -> Hook:
    """The hook of another package. Errors name its entry point, so that the user knows which package is broken."""
    try:
        hook: Hook = point.load()(name, table)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"hook {name}: entry point {point.name} = {point.value} cannot be loaded: {type(error).__name__}: {error}",
            hint="update or remove the package that provides it",
        ) from error
    missing = [part for part in ("name", "resend_s", "batch", "send") if not hasattr(hook, part)]
    if missing:
        raise UsageError(
            f"hook {name}: entry point {point.name} = {point.value} is not a hook: it has no {', '.join(missing)}",
            hint="see docs/guides/alert-hooks.md",
        )
    return hook
