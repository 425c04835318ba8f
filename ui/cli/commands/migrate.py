"""`rankscope migrate`: options."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import OwnStoreOption

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the SQL that would run. Change nothing.")]
RetentionOption = Annotated[
    int | None,
    typer.Option(
        envvar="RANKSCOPE_RETENTION_DAYS",
        min=0,
        max=36_500,
        help="Days to keep spans, samples, samples of hosts and OpenTelemetry rows. 0: forever. Default: no change.",
        show_default=False,
    ),
]
FindingsOption = Annotated[
    int | None,
    typer.Option(
        envvar="RANKSCOPE_FINDINGS_DAYS",
        min=0,
        max=36_500,
        help="Days to keep the findings log. 0: forever. Default: no change; a new store keeps it for 365 days.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions:
    """Create or upgrade the tables of a store. A collector does this when it starts. Stored rows do not change."""

    store: OwnStoreOption = "embedded:rankscope-store"
    dry_run: DryRunOption = False
    retention_days: RetentionOption = None
    findings_days: FindingsOption = None


migrate = command(MigrateOptions, "ui.cli.migrate:migrate")
