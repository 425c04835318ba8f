"""The work of `rankscope alerts`: the watcher and its hooks."""

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.text import Text

from diagnose.alerts.alert_store import AlertStore, read_alert_store
from diagnose.alerts.dispatch import Dispatcher
from diagnose.alerts.hooks.interface import Hook, HookError
from diagnose.alerts.hooks.log import MAX_LINE
from diagnose.alerts.hooks.registry import make_hook
from diagnose.alerts.listing import num_firing, state_object, state_text
from diagnose.alerts.notice import ErrorReports, Notice, sample_notices
from diagnose.alerts.settings import (
    Settings,
    checked_dashboard,
    checked_state,
    default_settings,
    default_state_file,
    make_hooks,
    read_settings,
)
from diagnose.alerts.watch import Watcher, dispatching, watch
from diagnose.settings import DetectorSettings
from telemetry.errors import UnreachableError, UsageError
from telemetry.printable import one_line
from telemetry.process.signals import ended_by_signals
from telemetry.stores.address import without_password
from ui.cli.commands.alerts import HookOptions, ListOptions, WatcherOptions
from ui.cli.output import out, progress
from ui.cli.readers import open_reader


def run(options: WatcherOptions) -> int:
    settings = _settings(options.config, options.state, options.dashboard)
    hooks = make_hooks(settings)
    DetectorSettings.from_environment()  # reports a wrong setting now, not at the first check
    stop = ended_by_signals()
    error_reports = ErrorReports(lambda text: progress.print(Text(one_line(text, MAX_LINE))))
    with ExitStack() as open_things:
        alert_store = open_things.enter_context(AlertStore(_state_file(settings)))
        for name, count in alert_store.drop_all_but(hook.name for hook in hooks).items():
            error_reports.report(
                f"hook {name} is not in the settings any more: its {count} notifications that wait are dropped"
            )
        dispatchers = [Dispatcher(hook, alert_store, error_reports) for hook in hooks]
        watcher = Watcher(
            open_reader=partial(open_reader, options.store),
            alert_store=alert_store,
            policy=settings.policy(hooks),
            dispatchers=dispatchers,
            error_reports=error_reports,
        )
        open_things.callback(watcher.close)
        watcher.open()
        open_things.enter_context(dispatching(dispatchers))
        error_reports.report(
            f"watching {without_password(options.store)}; alerts go to {', '.join(hook.name for hook in hooks)}"
        )
        if not options.store.startswith(("http://", "https://")):
            error_reports.report(
                "the dashboard does not show these alerts, because --store is not the address of a collector"
            )
        watch(watcher, options.every or settings.every_s, stop)
    return 0


def list_alerts(options: ListOptions) -> int:
    path = _state_file(_settings(options.config, options.state, ""))
    stands, waiting = read_alert_store(path)
    if options.json:
        # Some non-ASCII characters control terminals.
        out.print_json(data=state_object(stands, waiting), ensure_ascii=True)
    elif path.exists():
        out.print(state_text(stands, waiting, time.time_ns()))
    else:
        out.print(Text(f"no alerts: {one_line(str(path))} does not exist. `rankscope alerts run` creates it"))
    return int(num_firing(stands) > 0)


def try_hook(options: HookOptions) -> int:
    hook, settings = options.hook, _settings(options.config, None, options.dashboard)
    if hook not in settings.hooks:
        where = "" if options.config else "; --config FILE adds the hooks of a file"
        raise UsageError(f"unknown hook {hook!r}", hint=f"hooks in the settings: {', '.join(settings.hooks)}{where}")
    made = make_hook(hook, settings.hooks[hook])
    stop = ended_by_signals() if options.hold else threading.Event()
    fires, is_over = sample_notices(time.time_ns(), settings.dashboard)
    _send(made, fires)
    out.print(Text(f"hook {hook} accepted the sample alert. Its run is {fires.labels['run_id']}"))
    stop.wait(options.hold)
    _send(made, is_over)
    out.print(Text(f"hook {hook} accepted the end of the sample alert"))
    return 0


def _send(hook: Hook, notice: Notice) -> None:
    """Send a notice. If the receiver refuses it or does not answer, raise an error for the user."""
    try:
        hook.send([notice])
    except HookError as error:
        words = str(error) if str(error).startswith(f"hook {hook.name}") else f"hook {hook.name}: {error}"
        if error.hint:
            raise UsageError(words, hint=error.hint) from error
        if error.again:
            raise UnreachableError(words, hint="check that the receiver runs at this address") from error
        raise UsageError(
            words, hint=f"a retry does not help. Check the section [hooks.{hook.name}] in the file of rules"
        ) from error


def _settings(config: Path | None, state: Path | None, dashboard: str) -> Settings:
    """The settings of the file. Settings of the command line override them."""
    settings = read_settings(config) if config else default_settings()
    return replace(
        settings,
        state=checked_state(state) if state else settings.state,
        dashboard=checked_dashboard(dashboard) or settings.dashboard,
    )


def _state_file(settings: Settings) -> Path:
    try:
        return settings.state or default_state_file()
    except RuntimeError as error:
        raise UsageError("this user has no home folder to keep alerts in", hint="use --state FILE") from error
