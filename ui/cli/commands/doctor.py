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
JobOption = Annotated[
    bool,
    typer.Option(
        "--job",
        help="Check the settings of a job: timeouts against the length of a link flap, channels, buffers, topology "
        "file. Without --run, it checks the environment of this command; with --run, the environment of the ranks of "
        "this run on this host.",
    ),
]
FlapOption = Annotated[
    float | None,
    typer.Option(
        "--flap",
        help="With --job: length of a link loss that the job must survive, in seconds. "
        "Default: RANKSCOPE_LONGEST_FLAP_S, or 60.",
        callback=finite,
        min=0.0,
        show_default=False,
    ),
    Needs(("job",)),
]
JobSpoolOption = Annotated[
    Path | None,
    typer.Option(
        "--spool", help="With --job and --run: folder of rank files. Default: RANKSCOPE_SPOOL.", show_default=False
    ),
    Needs(("job",)),
]
QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="With --node: only memory, matrix products and disk. Takes about five seconds."),
    Needs(("node",)),
]
SecondsOption = Annotated[
    float,
    typer.Option(
        help="Time limit in seconds, at least 5, of each check of --node and of each round of --pairs. A check that "
        "takes longer is killed and fails.",
        callback=finite,
    ),
    Needs(("node", "pairs")),
]
PatienceOption = Annotated[
    float,
    typer.Option(help="Seconds to wait until all nodes have connected to node 0.", min=1.0, callback=finite),
    Needs(("rdzv_endpoint",)),
]
InterfaceOption = Annotated[
    str | None,
    typer.Option(help="Network interface. Default: found automatically.", show_default=False),
    Needs(("node", "pairs")),
]
ExpectOption = Annotated[
    Path | None,
    typer.Option(
        help="With --node: TOML file with the lowest allowed values, such as gemm_tflops = 600.", show_default=False
    ),
    Needs(("node",)),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(help="With --node: a folder on the disk to check. Default: the temporary folder.", show_default=False),
    Needs(("node",)),
]
EndpointOption = Annotated[
    str | None,
    typer.Option(
        "--rdzv-endpoint",
        metavar="HOST:PORT",
        help="Address of node 0 and a free port there, to which all nodes connect. The same on every node.",
    ),
    Needs(("node", "pairs")),
]
RankOption = Annotated[
    int | None,
    typer.Option("--node-rank", help="Number of this node, from 0. Different on every node.", show_default=False),
    Needs(("node", "pairs")),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Run even if training is active on this node. This can crash the training."),
    Needs(("node",)),
]
NodesOption = Annotated[
    int | None,
    typer.Option("--nnodes", help="Number of nodes in the test.", show_default=False),
    Needs(("node", "pairs")),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", help="Show the clock offsets of this run's hosts. With --job: check its ranks.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """Check this machine. Exit status 1 if a check fails."""

    node: NodeOption = False
    quick: QuickOption = False
    pairs: PairsOption = False
    job: JobOption = False
    flap: FlapOption = None
    spool: JobSpoolOption = None
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
