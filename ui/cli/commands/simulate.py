"""`rankscope simulate`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from ui.cli.commands.command import Needs, command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption

FAULT_KINDS = (
    *("slow", "throttle", "stage", "duration", "sequences", "gc", "link", "flap", "data-stall", "drift", "contention"),
    *("decline", "loss", "checkpoint", "tail", "idle", "experts"),
)
"""The kinds of ``diagnose.simulate.truth``. They are repeated here, because that module takes long to load."""
DataParallelOption = Annotated[int, typer.Option(help="Degree of data parallelism.")]
PipelineParallelOption = Annotated[int, typer.Option(help="Degree of pipeline parallelism.")]
TensorParallelOption = Annotated[int, typer.Option(help="Degree of tensor parallelism.")]
MeshOption = Annotated[
    str,
    typer.Option(
        help="Axes of the device mesh with their degrees, the slowest first: pp=2,dp_shard=4,tp=2. "
        "Replaces --dp, --pp and --tp.",
        show_default=False,
    ),
]
ClockOption = Annotated[
    Literal["host", "device"],
    typer.Option(
        help="Clock that times the spans. With `device`, spans show when the GPU runs the work. The CPU launches it "
        "earlier."
    ),
]
FsdpOption = Annotated[
    bool,
    typer.Option(
        "--fsdp", help="Shard parameters. Each layer gathers its parameters during the forward and the backward pass."
    ),
]
ExposedOption = Annotated[
    bool,
    typer.Option("--no-prefetch", help="With --fsdp: gather a layer only after the layer before it has ended."),
    Needs(("fsdp",)),
]
ExpertsOption = Annotated[
    bool,
    typer.Option(
        "--experts", help="Send tokens to experts along the axis ep of --mesh in each forward and backward pass."
    ),
]
RolesOption = Annotated[
    str,
    typer.Option(
        help="Simulate a reinforcement-learning job with these roles and their numbers of ranks: "
        "rollout=8,reward=2,reference=2,actor=4. Replaces --dp, --pp and --tp.",
        show_default=False,
    ),
]
ChunksOption = Annotated[
    int, typer.Option(help="Model chunks on each pipeline rank. Above 1 the schedule is interleaved.")
]
MicrobatchesOption = Annotated[int, typer.Option(help="Microbatches of a step on each replica.")]
StepsOption = Annotated[int, typer.Option(help="Number of steps.")]
SeedOption = Annotated[int, typer.Option(help="The same seed gives the same run, except for the time of day.")]
NoiseOption = Annotated[
    str, typer.Option(help="Variation of durations: recorded (as in real runs), heavy (long tails), or none.")
]
DeviceOption = Annotated[
    Literal["cuda", "cpu"], typer.Option(help="Device of the ranks. With `cpu`, processor time is recorded.")
]
HostOption = Annotated[int, typer.Option("--ranks-per-host", help="Ranks on each host.")]
CheckpointOption = Annotated[int, typer.Option("--checkpoint-every", help="Steps between checkpoints. 0: none.")]
CollectOption = Annotated[bool, typer.Option("--planned-gc", help="All ranks collect garbage at the end of each step.")]
OffsetOption = Annotated[float, typer.Option("--clock-offset-ms", help="Largest clock offset of a host.")]
DriftOption = Annotated[float, typer.Option("--clock-drift-ppm", help="Largest clock drift of a host.")]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="KIND:SETTINGS",
        help=f"Fault to simulate, such as slow:rank=5,factor=1.4. Can be repeated. Kinds: {', '.join(FAULT_KINDS)}. "
        "docs/guides/simulate.md describes the kinds and their settings.",
        show_default=False,
    ),
]
NameOption = Annotated[str, typer.Option(help="Name of the run.")]
TruthOption = Annotated[
    Path | None,
    typer.Option(help="Write the ground truth of the faults to this file. Its folder must exist.", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Simulate a run and store it like a recorded run. The ground truth of its faults is not stored."""

    dp: DataParallelOption = 4
    pp: PipelineParallelOption = 2
    tp: TensorParallelOption = 2
    mesh: MeshOption = ""
    chunks: ChunksOption = 1
    microbatches: MicrobatchesOption = 8
    steps: StepsOption = 40
    fault: FaultOption = None
    seed: SeedOption = 0
    noise: NoiseOption = "recorded"
    device: DeviceOption = "cuda"
    clock: ClockOption = "host"
    fsdp: FsdpOption = False
    no_prefetch: ExposedOption = False
    experts: ExpertsOption = False
    roles: RolesOption = ""
    ranks_per_host: HostOption = 8
    checkpoint_every: CheckpointOption = 0
    planned_gc: CollectOption = False
    clock_offset_ms: OffsetOption = 0.0
    clock_drift_ppm: DriftOption = 0.0
    name: NameOption = "simulated"
    store: StoreOption = DEFAULT_STORE
    truth: TruthOption = None
    json: JsonOption = False


simulate_run = command(SimulateOptions, "ui.cli.simulate:simulate_run")
