"""`rankscope export otlp` and `rankscope export perfetto`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from telemetry.errors import UsageError
from ui.cli.commands.command import add_command
from ui.cli.commands.shared import (
    DEFAULT_STORE,
    AttemptOption,
    FirstStepOption,
    JsonOption,
    LastStepOption,
    RunArgument,
    StoreOption,
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
        help="steps: one span for each rank and step. stages: also spans outside microbatches. operations: all spans."
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
    out_file: OutOption = None
    form: FormatOption = "json"
    json: JsonOption = False


export_app = typer.Typer(help="Export a run to OpenTelemetry or as a trace file.", no_args_is_help=True)
add_command(export_app, "otlp", OtlpOptions, "ui.cli.export_otlp:export_otlp")
add_command(export_app, "perfetto", PerfettoOptions, "ui.cli.export_perfetto:export_perfetto")
