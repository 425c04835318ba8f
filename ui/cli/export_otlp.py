"""The work of `rankscope export otlp`: send a run to an OpenTelemetry receiver."""

from diagnose.model.load import newest_attempt
from telemetry.exports.otlp import Sent, export_run
from telemetry.exports.trace_spans import Attempt
from telemetry.printable import printable
from ui.cli.chosen_steps import chosen_steps
from ui.cli.commands.export import OtlpOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out, progress
from ui.cli.readers import open_reader


def export_otlp(options: OtlpOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        exported = Attempt(run_id=run_id, attempt=number)
        first, last = chosen_steps(reader, run_id, number, window)
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
