"""`rankscope export` and its subcommands: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from telemetry.errors import UsageError
from ui.cli.commands.command import Needs, add_command
from ui.cli.commands.shared import (
    DEFAULT_STORE,
    AttemptOption,
    FirstStepOption,
    JsonOption,
    LastStepOption,
    RunArgument,
    StoreOption,
    finite,
)


def receiver_address(value: str | None) -> str | None:
    """A callback of options: refuses an address that is not that of an OTLP/HTTP receiver.

    Raises:
        UsageError: ``value`` has no scheme.
    """
    if value and not value.startswith(("http://", "https://")):
        raise UsageError(
            f"{value!r} is not the address of a receiver", hint="use http://HOST:4318 or https://HOST:4318"
        )
    return value


EndpointOption = Annotated[
    str | None,
    typer.Option(
        callback=receiver_address,
        help="Address of the receiver, such as http://host:4318. Default: from OTEL_EXPORTER_OTLP_*.",
        show_default=False,
    ),
]
DetailOption = Annotated[
    Literal["steps", "stages", "operations"],
    typer.Option(
        help="steps: one span for each rank and step. stages: also spans without a microbatch, such as those "
        "of data loading and the optimizer. operations: all spans."
    ),
]
RanksOption = Annotated[
    str, typer.Option(help="Ranks to export, such as 0-7,12. Default: all.", metavar="LIST", show_default=False)
]
HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host", metavar="NAME", help="Export only the ranks of this host. Can be repeated.", show_default=False
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File to write, in an existing folder; compressed if its name ends in .gz. "
        "Default: RUN-steps-A-B.json.gz, or .perfetto-trace for protobuf.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Literal["json", "protobuf"],
    typer.Option(
        "--format",
        help="json: the format of Chrome, which every viewer opens. protobuf: the format of Perfetto; needs the "
        "extra perfetto.",
    ),
]
ProfilesOption = Annotated[
    bool,
    typer.Option(
        "--profiles",
        help="Add the stored profiles of these ranks and steps (see `rankscope profile`). Without --first-step and "
        "--last-step, add the newest profile, and export its steps.",
    ),
]
KinetoOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--kineto",
        metavar="PATH",
        help="Add a trace of torch.profiler, or all traces in a folder, recorded by ranks of this run. Can be "
        "repeated. Without --first-step and --last-step, export the steps during these traces.",
        show_default=False,
    ),
]
ListFileOption = Annotated[
    Path | None,
    typer.Option("--out", help="File to write or replace. Default: standard output.", show_default=False),
]
ListFormatOption = Annotated[
    Literal["csv", "prometheus"],
    typer.Option("--format", help="csv: a table. prometheus: the metric rankscope_rank_gpu_info."),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for the event files, new or empty. Default: RUN-ATTEMPT-tensorboard.",
        show_default=False,
    ),
]
ProjectOption = Annotated[
    str, typer.Option(help="Name of the project in the tracker. In MLflow this is the experiment.")
]
FollowOption = Annotated[
    bool,
    typer.Option(
        "--follow", help="Continue to export new records of a live run until it ends. Ctrl-C ends the export."
    ),
]
EveryOption = Annotated[
    float,
    typer.Option(help="Seconds between two exports of --follow.", min=1.0, callback=finite),
    Needs(("follow",)),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions:
    """Send the spans and metrics of a run by OTLP. The standard OTEL_* variables apply."""

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    endpoint: EndpointOption = None
    attempt: AttemptOption = None
    detail: DetailOption = "stages"
    first_step: FirstStepOption = None
    last_step: LastStepOption = None
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfettoOptions:
    """Write steps of a run as a trace for Perfetto (ui.perfetto.dev), chrome://tracing and similar tools.

    Default: the newest ten steps.
    """

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    first_step: FirstStepOption = None
    last_step: LastStepOption = None
    ranks: RanksOption = ""
    host: HostOption = None
    profiles: ProfilesOption = False
    kineto: KinetoOption = None
    out_file: OutOption = None
    form: FormatOption = "json"
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Options of every experiment tracker."""

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    first_step: FirstStepOption = None
    last_step: LastStepOption = None
    follow: FollowOption = False
    every: EveryOption = 10.0
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorBoardOptions(TrackerOptions):
    """Write samples, step time, time by stage and findings of a run as event files for TensorBoard."""

    out_folder: FolderOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MlflowOptions(TrackerOptions):
    """Send samples, step time, time by stage and findings of a run to MLflow. The MLFLOW_* variables apply."""

    project: ProjectOption = "rankscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbOptions(TrackerOptions):
    """Send samples, step time, time by stage and findings of a run to Weights & Biases. The WANDB_* variables apply."""

    project: ProjectOption = "rankscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackioOptions(TrackerOptions):
    """Send samples, step time, time by stage and findings of a run to Trackio. The TRACKIO_* variables apply."""

    project: ProjectOption = "rankscope"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusOptions:
    """Write the GPU of each rank and the GPU's UUID, to join ranks with metrics of DCGM and other exporters."""

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    out_file: ListFileOption = None
    form: ListFormatOption = "csv"
    json: JsonOption = False


HELP = "Export a run to OpenTelemetry, to an experiment tracker, or as a trace file."
export_app = typer.Typer(help=HELP, no_args_is_help=True)
add_command(export_app, "otlp", OtlpOptions, "ui.cli.export_otlp:export_otlp")
add_command(export_app, "perfetto", PerfettoOptions, "ui.cli.export_perfetto:export_perfetto")
add_command(export_app, "tensorboard", TensorBoardOptions, "ui.cli.export_tracker:export_tensorboard")
add_command(export_app, "mlflow", MlflowOptions, "ui.cli.export_tracker:export_mlflow")
add_command(export_app, "wandb", WandbOptions, "ui.cli.export_tracker:export_wandb")
add_command(export_app, "trackio", TrackioOptions, "ui.cli.export_tracker:export_trackio")
add_command(export_app, "gpus", GpusOptions, "ui.cli.export_gpus:export_gpus")
