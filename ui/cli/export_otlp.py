"""The work of `rankscope export otlp`: send a run to an OpenTelemetry receiver."""

from diagnose.model.load import newest_attempt
from telemetry.errors import UsageError
from telemetry.exports.otlp import Sent, export_run
from telemetry.exports.trace_spans import Attempt
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs
from ui.cli.commands.export import OtlpOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out, progress
from ui.cli.readers import open_reader


def export_otlp(options: OtlpOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        exported = Attempt(run_id=run_id, attempt=number)
        first, last = _stored_steps(reader, run_id, number)
        if window:
            stored = f"{first} to {last}"
            first, last = max(first, window.first_step), min(last, window.last_step)
            if first > last:
                raise UsageError("no step in the chosen range is stored", hint=f"steps {stored} are stored")
        with progress.status(f"sending {printable(run_id)}, steps {first} to {last}"):
            sent = export_run(
                reader, exported, first_step=first, last_step=last, detail=options.detail, endpoint=options.endpoint
            )
    _print(exported, sent, json=options.json)
    return 0


def _print(exported: Attempt, sent: Sent, *, json: bool) -> None:
    if json:
        counts = {"spans": sent.spans, "points": sent.points, "rejected": sent.rejected, "reason": sent.reason}
        out.print_json(data={"schema": 1, "run": exported.run_id, "attempt": exported.attempt, **counts})
    elif sent.disabled:
        out.print("OTEL_SDK_DISABLED is set: nothing was sent")
    else:
        refused = f"; {sent.rejected} of them were rejected: {sent.reason}" if sent.rejected else ""
        name = printable(exported.run_id)
        out.print(f"{name}: {sent.spans} spans, {sent.points} points{refused}", markup=False, highlight=False)


def _stored_steps(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """The first and the last step that are stored."""
    for row in reader.read(Runs(run_ids=(run_id,))).to_pylist():
        if (row["run_id"], row["attempt"]) == (run_id, attempt):
            return row["first_step"], row["last_step"]
    raise AssertionError(run_id)
