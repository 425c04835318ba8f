"""`rankscope migrate`: the tables of a store, brought to the schema of this version."""

from typing import Annotated

import typer

from telemetry.errors import UsageError
from telemetry.stores.address import without_password
from ui.cli.options import out, progress
from ui.cli.readers import is_missing

EMPTY = "embedded:"
"""In memory: stands for a folder that is not there, which a dry run must not make."""
StoreOption = Annotated[
    str, typer.Option(envvar="RANKSCOPE_STORE", help="embedded:DIR or clickhouse://user@host:9000/database.")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the SQL that would run, and change nothing.")]
RetentionOption = Annotated[
    int | None,
    typer.Option(
        envvar="RANKSCOPE_RETENTION_DAYS",
        min=0,
        max=36_500,
        help="Days to keep spans, samples, samples of hosts and OpenTelemetry's rows; 0: for ever; left out: as it is.",
        show_default=False,
    ),
]


def migrate(
    store: StoreOption = "embedded:rankscope-store",
    dry_run: DryRunOption = False,
    retention_days: RetentionOption = None,
) -> None:
    """Make or upgrade the tables of a store. A collector does so itself when it starts; nothing stored is touched."""
    from telemetry.stores.open import find_store  # noqa: PLC0415 - the engines are optional extras

    if store.startswith(("http://", "https://")):
        raise UsageError(
            f"{without_password(store)} is a collector: it makes and upgrades its tables when it starts",
            hint="name its store: --store embedded:DIR or clickhouse://...",
        )
    found = find_store(EMPTY if dry_run and is_missing(store) else store)
    try:
        if dry_run:
            planned = found.plan(retention_days=retention_days)
            for statement in planned:
                out.print(f"{statement};\n", markup=False, highlight=False)
            if not planned:
                progress.print(f"{without_password(store)}: up to date, nothing to run", markup=False, highlight=False)
            return
        found.migrate(retention_days=retention_days)
    finally:
        found.close()
    progress.print(f"{without_password(store)}: up to date", markup=False, highlight=False)
