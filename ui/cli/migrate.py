"""The work of `rankscope migrate`: upgrade the tables of a store to the schema of this version."""

from collections.abc import Sequence

from telemetry.errors import UsageError
from telemetry.stores.address import without_password
from telemetry.stores.open import find_store
from telemetry.stores.retention import Limits
from ui.cli.commands.migrate import MigrateOptions
from ui.cli.output import out, progress
from ui.cli.readers import is_missing

EMPTY = "embedded:"
"""The address of a store in memory. A dry run uses it if the folder of the store does not exist, because a dry run must
not create the folder."""


def migrate(options: MigrateOptions) -> int:
    address = without_password(options.store)
    if options.store.startswith(("http://", "https://")):
        raise UsageError(
            f"{address} is a collector: it creates and upgrades its tables when it starts",
            hint="give the address of a store: --store embedded:DIR or clickhouse://...",
        )
    limits = Limits(raw_days=options.retention_days, findings_days=options.findings_days)
    found = find_store(EMPTY if options.dry_run and is_missing(options.store) else options.store)
    try:
        if options.dry_run:
            _print_plan(found.plan(limits=limits), address)
            return 0
        planned = found.plan(limits=limits)
        found.migrate(limits=limits)
    finally:
        found.close()
    result = f"upgraded, {len(planned)} statements run" if planned else "already up to date"
    progress.print(f"{address}: {result}", markup=False, highlight=False)
    return 0


def _print_plan(planned: Sequence[str], address: str) -> None:
    for statement in planned:
        out.print(f"{statement};\n", markup=False, highlight=False)
    if not planned:
        progress.print(f"{address}: up to date, nothing to run", markup=False, highlight=False)
