"""`rankscope import`: options."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption


class Format(StrEnum):
    """The formats that can be imported."""

    STRAGGLER_ANALYSIS = "straggler-analysis"
    KINETO = "kineto"
    TORCHTITAN = "torchtitan"
    NDTIMELINE = "ndtimeline"
    MEGASCAN = "megascan"
    NCCL_INSPECTOR = "nccl-inspector"
    NSYS = "nsys"
    CHAKRA = "chakra"
    OTLP = "otlp"


FORMATS = [form.value for form in Format]


def checked_format(name: str) -> str:
    """Return ``name`` if it is a format. A list of choices would make the help wider than a terminal.

    Raises:
        BadParameter: ``name`` is no format.
    """
    if name not in FORMATS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(FORMATS)}")
    return name


FormatArgument = Annotated[
    str,
    typer.Argument(
        callback=checked_format,
        autocompletion=lambda: FORMATS,
        metavar="FORMAT",
        help="straggler-analysis: trace-NAME.parquet with meta-NAME.yaml in the same folder, or that folder. "
        "kineto: PyTorch profiler traces, a .json or .json.gz for each rank, or their folder. "
        "torchtitan: structured_logs/*.jsonl. "
        "ndtimeline: veScale's raw log or Chrome trace. "
        "megascan: MegatronApp's benchmark-*.json. "
        "nccl-inspector: HOST-pidN.log. "
        "nsys: Nsight Systems reports, exported to SQLite. "
        "chakra: execution traces, .et or .json. "
        "otlp: OpenTelemetry spans of ranks, JSON lines.",
        show_default=False,
    ),
]
PathsArgument = Annotated[list[Path], typer.Argument(metavar="PATH", help="Files, or a folder.", show_default=False)]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the run. Default: from the files.", show_default=False)
]
MetaOption = Annotated[
    Path | None,
    typer.Option("--meta", help="straggler-analysis: file of the job's parallel layout.", show_default=False),
]
DataParallelOption = Annotated[
    int | None,
    typer.Option(min=1, help="Degree of data parallelism, if the files do not contain it.", show_default=False),
]
PipelineParallelOption = Annotated[
    int | None,
    typer.Option(min=1, help="Degree of pipeline parallelism, if the files do not contain it.", show_default=False),
]
TensorParallelOption = Annotated[
    int | None,
    typer.Option(min=1, help="Degree of tensor parallelism, if the files do not contain it.", show_default=False),
]
MeshOption = Annotated[
    str | None,
    typer.Option(
        "--mesh",
        help="Axes of the device mesh in rank order, the slowest first: pp=2,dp_shard=4,tp=8.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRunOptions:
    """Store traces of other tools as a run. Reads everything before it stores anything."""

    format: FormatArgument
    paths: PathsArgument
    store: StoreOption = DEFAULT_STORE
    name: NameOption = None
    meta: MetaOption = None
    dp: DataParallelOption = None
    pp: PipelineParallelOption = None
    tp: TensorParallelOption = None
    mesh: MeshOption = None
    json: JsonOption = False


import_run = command(ImportRunOptions, "ui.cli.import_run:import_run")
