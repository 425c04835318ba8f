"""`rankscope goodput`: options."""

from dataclasses import dataclass

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, RunArgument, StoreOption


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputOptions:
    """Print how a run used its wall time over all attempts, and the cost of each incident."""

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    json: JsonOption = False


goodput = command(GoodputOptions, "ui.cli.goodput:goodput")
