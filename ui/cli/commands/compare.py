"""`rankscope compare`: options."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption, finite

AArgument = Annotated[str, typer.Argument(help="The reference: RUN, RUN/ATTEMPT, RUN/steps=100-199 or RUN/ranks=0-7.")]
BArgument = Annotated[str, typer.Argument(help="The side to compare with A, in the same form.")]
LeastOption = Annotated[
    float,
    typer.Option(
        "--least-change",
        metavar="PERCENT",
        min=0.0,
        max=100.0,
        callback=finite,
        help="Smaller changes are not reported as a difference, even if they are significant.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """Compare two runs, attempts, step ranges or sets of ranks, and print whether B is slower than A.

    The output shows by how much, in which stages, and on which ranks. A change within the noise is not reported. Exit
    status 1 if B is slower.
    """

    a: AArgument
    b: BArgument
    least_change: LeastOption = 1.0
    store: StoreOption = DEFAULT_STORE
    json: JsonOption = False


compare = command(CompareOptions, "ui.cli.compare:compare")
