"""`rankscope alerts run`, `alerts list` and `alerts test`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import add_command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption, finite

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", envvar="RANKSCOPE_ALERTS", help="File of rules and hooks (TOML).", show_default=False),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="File that keeps alerts between two checks. Default: that of the file of rules, otherwise "
        "~/.local/state/rankscope/alerts.sqlite.",
        show_default=False,
    ),
]
EveryOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds between two checks; longer if a check takes longer. Default: that of the file of rules, "
        "otherwise 5.",
        min=0.2,
        callback=finite,
        show_default=False,
    ),
]
DashboardOption = Annotated[str, typer.Option(help="Address of the dashboard. Alerts link to it.", show_default=False)]
HoldOption = Annotated[
    float,
    typer.Option(
        "--hold",
        help="Seconds between the sample alert and its end. Ctrl-C ends the alert at once.",
        min=0,
        max=3600,
        callback=finite,
    ),
]
HookArgument = Annotated[str, typer.Argument(help="Name of the hook in the file of rules.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatcherOptions:
    """Watch the newest runs and send alerts to the hooks. SIGTERM, SIGHUP or Ctrl-C ends it.

    Alerts that are not sent yet are sent after the next start.
    """

    config: ConfigOption = None
    store: StoreOption = DEFAULT_STORE
    every: EveryOption = None
    dashboard: DashboardOption = ""
    state: StateOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """List alerts that are pending, firing, or were resolved in the last 24 hours. Exit status 1 if any is firing."""

    config: ConfigOption = None
    state: StateOption = None
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """Send a sample alert and its end to a hook. Exit status 2 if it is refused, 3 if the receiver is unreachable.

    Alertmanager does not notify of an alert that ends within its group_wait. Use --hold to make the alert last longer.
    """

    hook: HookArgument
    config: ConfigOption = None
    dashboard: DashboardOption = ""
    hold: HoldOption = 0.0


alerts_app = typer.Typer(help="Send an alert when a problem begins, and again when it ends.", no_args_is_help=True)
add_command(alerts_app, "run", WatcherOptions, "ui.cli.alerts:run")
add_command(alerts_app, "list", ListOptions, "ui.cli.alerts:list_alerts")
add_command(alerts_app, "test", HookOptions, "ui.cli.alerts:try_hook")
