"""`rankscope doctor`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import Needs, command
from ui.cli.commands.shared import DEFAULT_STORE, AttemptOption, JsonOption, StoreOption, finite

NodeOption = Annotated[
    bool,
    typer.Option("--node", help="Check memory, matrix products, copies, network and disk of this node."),
]
PairsOption = Annotated[
    bool, typer.Option("--pairs", help="Test nodes in pairs to find a bad one. Start it on every node.")
]
QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="With --node: only memory, matrix products and disk. Takes about five seconds."),
    Needs(("node",)),
]
SecondsOption = Annotated[
    float,
    typer.Option(
        help="Time limit of a check or a round, in seconds. At the limit it is killed and fails. At least 5.",
        callback=finite,
    ),
    Needs(("node", "pairs")),
]
PatienceOption = Annotated[
    float,
    typer.Option(help="Seconds to wait for the other nodes.", min=1.0, callback=finite),
    Needs(("node", "pairs")),
]
InterfaceOption = Annotated[
    str | None,
    typer.Option(help="Network interface. Default: found automatically.", show_default=False),
    Needs(("node", "pairs")),
]
ExpectOption = Annotated[
    Path | None,
    typer.Option(help="TOML file of minimum values, such as gemm_tflops = 600.", show_default=False),
    Needs(("node",)),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(help="Folder of the disk to check. Default: the temporary folder.", show_default=False),
    Needs(("node",)),
]
EndpointOption = Annotated[
    str | None,
    typer.Option("--rdzv-endpoint", metavar="HOST:PORT", help="Rendezvous of the nodes: an address of node 0."),
    Needs(("node", "pairs")),
]
RankOption = Annotated[
    int | None,
    typer.Option("--node-rank", help="Number of this node, from 0.", show_default=False),
    Needs(("node", "pairs")),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Run even if training is active on this node. This can crash the training."),
    Needs(("node",)),
]
NodesOption = Annotated[
    int | None, typer.Option("--nnodes", help="Number of nodes.", show_default=False), Needs(("node", "pairs"))
]
RunOption = Annotated[
    str | None, typer.Option("--run", help="Show the clock offsets of this run's hosts.", show_default=False)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Check this machine. Exit status 1 if a check fails."""

    node: NodeOption = False
    quick: QuickOption = False
    pairs: PairsOption = False
    seconds: SecondsOption = 15.0
    interface: InterfaceOption = None
    expect: ExpectOption = None
    folder: FolderOption = None
    rdzv_endpoint: EndpointOption = None
    node_rank: RankOption = None
    nnodes: NodesOption = None
    patience: PatienceOption = 60.0
    force: ForceOption = False
    run: RunOption = None
    store: Annotated[StoreOption, Needs(("run",))] = DEFAULT_STORE
    attempt: Annotated[AttemptOption, Needs(("run",))] = None
    json: JsonOption = False


doctor = command(DoctorOptions, "ui.cli.doctor:doctor")
