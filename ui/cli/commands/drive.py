"""`rankscope drive` and its subcommands: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from diagnose.findings import Kind
from ui.cli.commands.command import DEFAULT, DefaultCommand, RunByDefault, add_command
from ui.cli.commands.demo import FaultOption, MicrobatchesOption
from ui.cli.commands.shared import JsonOption, collector_address
from ui.cli.commands.train import (
    DataOption,
    DataParallelOption,
    EveryOption,
    KeepOption,
    PipelineParallelOption,
    RecipeOption,
    RunOption,
    SharedLoaderOption,
    StepsOption,
    TensorParallelOption,
    TimeoutOption,
)

DEFAULT_OUT = Path("rankscope-out/drive")
NodesOption = Annotated[
    int, typer.Option(min=1, help="Number of nodes that train. The ranks are divided among these nodes.")
]
SparesOption = Annotated[int, typer.Option(min=0, help="Number of additional nodes. They replace nodes that fail.")]
OutOption = Annotated[Path, typer.Option(help="Folder of the job: state, checkpoints, logs, rank files, store.")]
CollectorOption = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_COLLECTOR",
        help="Address of a collector, http://HOST:PORT. Default: start a collector with dashboard and alerts.",
        callback=collector_address,
        show_default=False,
    ),
]
OwnCollectorOption = Annotated[
    bool,
    typer.Option(
        "--own-collector/--no-own-collector",
        help="Start a collector if --collector is not set. With no collector, spans stay in --out.",
    ),
]
CheckpointsOption = Annotated[
    Path | None,
    typer.Option(file_okay=False, help="Folder for checkpoints. Default: a folder in --out.", show_default=False),
]
ActOption = Annotated[
    list[Kind],
    typer.Option(
        "--act-on",
        metavar="KIND",
        help="Also replace the node that a finding of this kind names, such as compute-straggler. loss-anomaly: "
        "continue with a checkpoint before the first bad step. Can be repeated.",
    ),
]
FailuresOption = Annotated[
    int, typer.Option(min=0, help="Give up after this many attempts in a row without a new step.")
]
StallOption = Annotated[
    float,
    typer.Option(min=1, help="Restart the job after a stall of this many seconds that no finding explains."),
]
ChecksOption = Annotated[
    bool, typer.Option("--checks/--no-checks", help="Check nodes before they train, and after a fault.")
]
ReplicasOption = Annotated[
    bool,
    typer.Option(
        "--replicas/--no-replicas",
        help="Keep a copy of the newest state in the memory of two nodes. Then a restart repeats fewer steps.",
    ),
]
ListenOption = Annotated[
    str,
    typer.Option(
        help="Address on which the driver listens for nodes on other hosts; start each with `rankscope drive node`. "
        "Default: all nodes are processes on this machine.",
        show_default=False,
    ),
]
AddressOption = Annotated[
    str, typer.Option(help="Address of this host, by which other nodes reach it.", show_default=False)
]
OwnNameArgument = Annotated[str, typer.Argument(help="Name of this node. Default: the host name.", show_default=False)]
NodeArgument = Annotated[str, typer.Argument(help="Name of the node, as in `rankscope drive status`.")]
OptionalNodeArgument = Annotated[
    str,
    typer.Argument(
        help="Blocked or drained node to admit again. Without it, the paused job continues.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveOptions:
    """Train a model on several nodes, and continue after a node fails. By default, nodes are processes of this machine.

    A node that fails is checked. If it is faulty, a spare node replaces it. Training continues from the newest
    checkpoint. The same command continues a job that was interrupted.
    """

    nodes: NodesOption = 1
    spares: SparesOption = 0
    recipe: RecipeOption = "tiny_cpu"
    data: DataOption = None
    steps: StepsOption = None
    dp: DataParallelOption = None
    pp: PipelineParallelOption = None
    tp: TensorParallelOption = None
    microbatches: MicrobatchesOption = None
    shared_loader: SharedLoaderOption = True
    seed: Annotated[int, typer.Option(help="The same seed gives the same loss.")] = 0
    collective_timeout: TimeoutOption = None
    run: RunOption = None
    out: OutOption = DEFAULT_OUT
    collector: CollectorOption = None
    own_collector: OwnCollectorOption = True
    checkpoints: CheckpointsOption = None
    checkpoint_every: EveryOption = None
    keep: KeepOption = None
    replicas: ReplicasOption = False
    max_failures: FailuresOption = 5
    stall: StallOption = 60.0
    checks: ChecksOption = True
    act_on: ActOption = ()  # type: ignore[assignment]
    listen: ListenOption = ""
    fault: FaultOption = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Let this host train for a driver on another host. Needs the folder of the job on shared storage.

    Ends with the job. Let systemd or a similar program restart it if its exit status is not 0.
    """

    name: OwnNameArgument = ""
    address: AddressOption
    out: OutOption = DEFAULT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOptions:
    """Print the state of the job, its nodes, and the newest decisions."""

    out: OutOption = DEFAULT_OUT
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """Take a node out of the job after a checkpoint."""

    node: NodeArgument
    out: OutOption = DEFAULT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceOptions:
    """Replace a node by a spare after a checkpoint, and check the node."""

    node: NodeArgument
    out: OutOption = DEFAULT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseOptions:
    """Save a checkpoint and stop the ranks. The nodes stay."""

    out: OutOption = DEFAULT_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """Continue a paused job, or admit a blocked or drained node again after a check."""

    node: OptionalNodeArgument = ""
    out: OutOption = DEFAULT_OUT


drive_app = typer.Typer(
    cls=RunByDefault, help="Train a model on several nodes, and continue after a node fails.", no_args_is_help=False
)
add_command(drive_app, DEFAULT, DriveOptions, "ui.cli.drive:drive", cls=DefaultCommand)
add_command(drive_app, "node", NodeOptions, "ui.cli.drive:node")
add_command(drive_app, "status", StatusOptions, "ui.cli.drive:status")
add_command(drive_app, "drain", DrainOptions, "ui.cli.drive:drain")
add_command(drive_app, "replace", ReplaceOptions, "ui.cli.drive:replace_node")
add_command(drive_app, "pause", PauseOptions, "ui.cli.drive:pause")
add_command(drive_app, "resume", ResumeOptions, "ui.cli.drive:resume")
