"""`rankscope export otlp`: a run to whoever takes OpenTelemetry."""

from typing import Annotated, Literal

import typer

from diagnose.model.load import newest_attempt
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs
from ui.cli.diagnose import FirstStepOption, LastStepOption, step_window
from ui.cli.options import (
    DEFAULT_STORE,
    AttemptOption,
    JsonOption,
    RunArgument,
    StoreOption,
    out,
    progress,
)
from ui.cli.readers import open_reader

EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="Where the receiver is, such as http://host:4318; OTEL_EXPORTER_OTLP_* when left out.", show_default=False
    ),
]
DetailOption = Annotated[
    Literal["steps", "stages", "operations"],
    typer.Option(help="steps: one span a rank and step. stages: and what belongs to no microbatch. operations: all."),
]


def export_otlp(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    endpoint: EndpointOption = None,
    attempt: AttemptOption = None,
    detail: DetailOption = "stages",
    first_step: FirstStepOption = None,
    last_step: LastStepOption = None,
    json: JsonOption = False,
) -> None:
    """Send a run's spans and metrics by OpenTelemetry's protocol. The usual OTEL_* variables hold."""
    from telemetry.exports.otlp import export_run  # noqa: PLC0415 - the exporters are an optional extra
    from telemetry.exports.resources import Attempt  # noqa: PLC0415

    window = step_window(first_step, last_step)
    with open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        who = Attempt(run_id=run_id, attempt=number)
        first, last = _steps_there(reader, who.run_id, who.attempt)
        if window:
            first, last = max(first, window.first_step), min(last, window.last_step)
        with progress.status(f"sending {printable(who.run_id)}, steps {first} to {last}"):
            sent = export_run(reader, who, first_step=first, last_step=last, detail=detail, endpoint=endpoint)
    if json:
        told = {"spans": sent.spans, "points": sent.points, "rejected": sent.rejected, "reason": sent.reason}
        out.print_json(data={"schema": 1, "run": who.run_id, "attempt": who.attempt, **told})
    elif sent.disabled:
        out.print("OTEL_SDK_DISABLED is set: nothing was sent")
    else:
        refused = f"; {sent.rejected} of them were refused: {sent.reason}" if sent.rejected else ""
        name = printable(who.run_id)
        out.print(f"{name}: {sent.spans} spans, {sent.points} points{refused}", markup=False, highlight=False)


def _steps_there(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """The first and the last step that are stored."""
    for row in reader.read(Runs(run_ids=(run_id,))).to_pylist():
        if (row["run_id"], row["attempt"]) == (run_id, attempt):
            return row["first_step"], row["last_step"]
    raise AssertionError(run_id)
