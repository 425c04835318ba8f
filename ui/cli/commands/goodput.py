"""`rankscope goodput`: options."""

from dataclasses import dataclass

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, RunArgument, StoreOption


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputOptions:
    """Print where the wall time of a run went, over all of its attempts, and what each incident cost."""

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    json: JsonOption = False


goodput = command(GoodputOptions, "ui.cli.goodput:goodput")
