"""`rankscope train`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from trainer.choices import BlockForm, OptimizerName, Precision, Recompute, ScheduleName
from ui.cli.commands.command import command
from ui.cli.commands.demo import FaultOption, MicrobatchesOption
from ui.cli.commands.shared import collector_address

DEFAULT_OUT = Path("rankscope-out/train")
RecipeOption = Annotated[
    str,
    typer.Option(help="tiny_cpu (eight ranks on the CPU), tiny_lamb, deep_cpu, one_gpu, wide_gpu or megascale_175b."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Text file, folder of text, or .bin file of uint16 tokens. "
        "Default: the files of Python's standard library.",
        show_default=False,
    ),
]
CollectorOption = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_COLLECTOR",
        help="Address of the collector, http://HOST:PORT. An agent on this host sends the spans.",
        callback=collector_address,
    ),
]
StepsOption = Annotated[
    int | None, typer.Option(min=1, help="Number of steps. Default: the recipe's.", show_default=False)
]
RunOption = Annotated[str | None, typer.Option(help="Name of the run. Default: recipe and time.", show_default=False)]
OutOption = Annotated[Path, typer.Option(help="Folder for logs, ground truth and rank files.")]
DataParallelOption = Annotated[
    int | None, typer.Option(min=1, help="Degree of data parallelism. Default: the recipe's.", show_default=False)
]
PipelineParallelOption = Annotated[
    int | None, typer.Option(min=1, help="Degree of pipeline parallelism. Default: the recipe's.", show_default=False)
]
TensorParallelOption = Annotated[
    int | None, typer.Option(min=1, help="Degree of tensor parallelism. Default: the recipe's.", show_default=False)
]
PeakOption = Annotated[
    float | None, typer.Option(help="Peak TFLOP/s of one device without sparsity. MFU needs it.", show_default=False)
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a collective or a transfer fails. Use more than the longest link loss that the job "
        "must survive. Default: torch's.",
        show_default=False,
    ),
]
SharedLoaderOption = Annotated[
    bool,
    typer.Option(
        "--shared-loader/--no-shared-loader",
        help="One process for each host prepares the batches for all ranks of the host. With --no-shared-loader, each "
        "rank reads the data itself. The batches are the same.",
    ),
]
DelayOption = Annotated[
    float,
    typer.Option(
        min=0,
        max=10_000,
        help="Milliseconds to add to every collective and transfer, to imitate a slower network. The delay uses no "
        "processor time, so overlap saves time on a CPU too.",
    ),
]
OverlapOption = Annotated[
    str,
    typer.Option(
        help="Axes whose communication runs at the same time as compute: a list such as dp,tp, or all, or none."
    ),
]
TelemetryOption = Annotated[bool, typer.Option("--telemetry/--no-telemetry", help="Record spans.")]


CheckpointsOption = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="Folder for checkpoints. Training continues with the newest complete one. Default: no checkpoints.",
        show_default=False,
    ),
]
EveryOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Steps between checkpoints. Default: computed from the measured time of a checkpoint, so that "
        "checkpoints and repeated work together cost the least time.",
        show_default=False,
    ),
]
KeepOption = Annotated[
    int | None,
    typer.Option(min=1, help="Number of complete checkpoints to keep on disk. Default: 2.", show_default=False),
]
ChunksOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Model chunks of a pipeline rank. With 2 or more, the schedule is interleaved 1F1B.",
        show_default=False,
    ),
]
ScheduleOption = Annotated[
    ScheduleName | None, typer.Option(help="Schedule of the pipeline. Default: 1f1b.", show_default=False)
]
BlockOption = Annotated[
    BlockForm | None,
    typer.Option(
        help="parallel: attention and MLP of a block have the same input. serial: the MLP follows the attention. "
        "Default: the recipe's.",
        show_default=False,
    ),
]
FusedOption = Annotated[
    bool | None,
    typer.Option(
        "--fused-projection/--separate-projections",
        help="Compute query, key, value and the first layer of the MLP in one matrix product. Default: the recipe's.",
        show_default=False,
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Sliding-window attention: number of tokens that a token attends to. 0: all earlier tokens. "
        "Default: the recipe's.",
        show_default=False,
    ),
]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option(help="Precision of the compute. Parameters stay float32. Default: the recipe's.", show_default=False),
]
RecomputeOption = Annotated[
    Recompute | None,
    typer.Option(
        help="Activations to compute again in the backward pass, to save memory. Default: the recipe's.",
        show_default=False,
    ),
]
CompileOption = Annotated[
    bool | None,
    typer.Option(
        "--compile/--no-compile",
        help="Compile each block with torch.compile. Default: the recipe's.",
        show_default=False,
    ),
]
OptimizerOption = Annotated[
    OptimizerName | None, typer.Option(help="The optimizer. Default: the recipe's.", show_default=False)
]
LearningRateOption = Annotated[
    float | None, typer.Option(help="Peak of the learning rate. Default: the recipe's.", show_default=False)
]


LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label", metavar="NAME=VALUE", help="Label of the run, stored with it. Can be repeated.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Train a model from a recipe, a complete configuration.

    Starts all ranks on this machine. Under torchrun, this process is one rank.
    """

    recipe: RecipeOption = "tiny_cpu"
    data: DataOption = None
    steps: StepsOption = None
    dp: DataParallelOption = None
    pp: PipelineParallelOption = None
    tp: TensorParallelOption = None
    microbatches: MicrobatchesOption = None
    chunks: ChunksOption = None
    schedule: ScheduleOption = None
    shared_loader: SharedLoaderOption = True
    block: BlockOption = None
    fused_projection: FusedOption = None
    window: WindowOption = None
    precision: PrecisionOption = None
    recompute: RecomputeOption = None
    compile: CompileOption = None
    optimizer: OptimizerOption = None
    learning_rate: LearningRateOption = None
    seed: Annotated[int, typer.Option(help="The same seed gives the same loss.")] = 0
    peak_tflops: PeakOption = None
    collective_timeout: TimeoutOption = None
    run: RunOption = None
    labels: LabelOption = None
    out: OutOption = DEFAULT_OUT
    collector: CollectorOption = None
    checkpoints: CheckpointsOption = None
    checkpoint_every: EveryOption = None
    keep: KeepOption = None
    overlap: OverlapOption = "none"
    comm_delay_ms: DelayOption = 0.0
    fault: FaultOption = "none"
    telemetry: TelemetryOption = True


train = command(TrainOptions, "ui.cli.train:train")
