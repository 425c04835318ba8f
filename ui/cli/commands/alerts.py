"""`rankscope alerts`: the options of its commands."""

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
        help="File that keeps alerts between two checks. Default: `state` in the file of rules, otherwise "
        "~/.local/state/rankscope/alerts.sqlite.",
        show_default=False,
    ),
]
EveryOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds between two checks; longer if a check takes longer. Default: `every` in the file of rules, "
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
RunOption = Annotated[str, typer.Option(help="Name of the run.", show_default=False)]
FindOption = Annotated[str, typer.Option(help="A part of the name of the run. Case is ignored.", show_default=False)]
KindOption = Annotated[str, typer.Option(help="Kind of finding, such as nic-flap.", show_default=False)]
SeverityOption = Annotated[str, typer.Option(help="critical, warning or info.", show_default=False)]
FindingHostOption = Annotated[str, typer.Option(help="Name of a host.", show_default=False)]
FindingStateOption = Annotated[
    str, typer.Option(help="State: firing (not resolved), acknowledged, silenced or resolved.", show_default=False)
]
SinceOption = Annotated[
    str,
    typer.Option(
        help="Omit findings that were resolved before this time: 7d (seven days ago), or '2026-11-27 14:00'.",
        show_default=False,
    ),
]
UntilOption = Annotated[
    str,
    typer.Option(
        help="Omit findings that were raised after this time: 1d (a day ago), or 2026-11-28.", show_default=False
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, max=10_000, help="Number of findings on a page.")]
PageOption = Annotated[int, typer.Option(min=1, max=100_000, help="Page to list, from 1.")]
FingerprintArgument = Annotated[str, typer.Argument(help="Fingerprint of the finding, as `alerts log` prints it.")]
NoteArgument = Annotated[str, typer.Argument(help="Text of the note.")]
ByOption = Annotated[str, typer.Option(help="Your name. Default: the name of this user.", show_default=False)]
TextOption = Annotated[str, typer.Option(help="The reason, in one line.", show_default=False)]
UndoOption = Annotated[bool, typer.Option("--undo", help="Withdraw the acknowledgement.")]
DurationOption = Annotated[
    str, typer.Option("--for", metavar="DURATION", help="How long: 90m, 4h, 7d.", show_default=False)
]
SilenceUntilOption = Annotated[str, typer.Option(help="End, such as '2026-11-27 14:00'.", show_default=False)]
EndOption = Annotated[bool, typer.Option("--end", help="End the silence now.")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """List the findings of all runs, the newest first, with what people did about each."""

    store: StoreOption = DEFAULT_STORE
    run: RunOption = ""
    find: FindOption = ""
    kind: KindOption = ""
    severity: SeverityOption = ""
    host: FindingHostOption = ""
    state: FindingStateOption = ""
    since: SinceOption = ""
    until: UntilOption = ""
    limit: LimitOption = 50
    page: PageOption = 1
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgeOptions:
    """Acknowledge a finding: no notification is sent until it is resolved. Needs the write token of the collector."""

    fingerprint: FingerprintArgument
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    text: TextOption = ""
    undo: UndoOption = False
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOptions:
    """Write a note about a finding. Needs the write token of the collector."""

    fingerprint: FingerprintArgument
    text: NoteArgument
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SilenceOptions:
    """Silence a finding for a time. Needs the write token of the collector.

    No notification is sent during this time, even if the problem ends and returns. The watcher also sets the silence in
    Alertmanager.
    """

    fingerprint: FingerprintArgument
    store: StoreOption = DEFAULT_STORE
    duration: DurationOption = ""
    until: SilenceUntilOption = ""
    end: EndOption = False
    by: ByOption = ""
    text: TextOption = ""
    json: JsonOption = False


alerts_app = typer.Typer(help="Send an alert when a problem begins, and again when it ends.", no_args_is_help=True)
add_command(alerts_app, "run", WatcherOptions, "ui.cli.alerts:run")
add_command(alerts_app, "list", ListOptions, "ui.cli.alerts:list_alerts")
add_command(alerts_app, "test", HookOptions, "ui.cli.alerts:try_hook")
add_command(alerts_app, "log", LogOptions, "ui.cli.findings_log:list_findings")
add_command(alerts_app, "acknowledge", AcknowledgeOptions, "ui.cli.findings_log:acknowledge")
add_command(alerts_app, "note", NoteOptions, "ui.cli.findings_log:note")
add_command(alerts_app, "silence", SilenceOptions, "ui.cli.findings_log:silence")
