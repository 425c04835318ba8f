"""The work of `rankscope export`.

perfetto    write steps of a run as a trace that other tools open
otlp        send a run to an OpenTelemetry receiver
"""

from pathlib import Path

from diagnose.model.load import newest_attempt
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice, choose
from diagnose.trace.export import Format, Written, export_trace
from telemetry.exports.otlp import Sent, export_run
from telemetry.exports.trace_spans import Attempt
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Runs
from ui.cli.commands.export import OtlpOptions, PerfettoOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out, progress
from ui.cli.readers import open_reader
from ui.dashboard.pages.timeline.selection import clock_note
from ui.dashboard.wording import count, size


def export_otlp(options: OtlpOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        who = Attempt(run_id=run_id, attempt=number)
        first, last = _stored_steps(reader, run_id, number)
        if window:
            first, last = max(first, window.first_step), min(last, window.last_step)
        with progress.status(f"sending {printable(run_id)}, steps {first} to {last}"):
            sent = export_run(
                reader, who, first_step=first, last_step=last, detail=options.detail, endpoint=options.endpoint
            )
    _print_sent(who, sent, json=options.json)
    return 0


def _print_sent(who: Attempt, sent: Sent, *, json: bool) -> None:
    if json:
        sums = {"spans": sent.spans, "points": sent.points, "rejected": sent.rejected, "reason": sent.reason}
        out.print_json(data={"schema": 1, "run": who.run_id, "attempt": who.attempt, **sums})
    elif sent.disabled:
        out.print("OTEL_SDK_DISABLED is set: nothing was sent")
    else:
        refused = f"; {sent.rejected} of them were refused: {sent.reason}" if sent.rejected else ""
        name = printable(who.run_id)
        out.print(f"{name}: {sent.spans} spans, {sent.points} points{refused}", markup=False, highlight=False)


def _stored_steps(reader: Reader, run_id: str, attempt: int) -> tuple[int, int]:
    """The first and the last step that are stored."""
    for row in reader.read(Runs(run_ids=(run_id,))).to_pylist():
        if (row["run_id"], row["attempt"]) == (run_id, attempt):
            return row["first_step"], row["last_step"]
    raise AssertionError(run_id)


def export_perfetto(options: PerfettoOptions) -> int:
    window, form = step_window(options.first_step, options.last_step), Format(options.form)
    with open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        choice = choose(reader, run_id, number, window=window, ranks=options.ranks, hosts=options.host or ())
        written = _write(reader, choice, form, options.out_file)
    for note in _notes(written):
        progress.print(note, markup=False, highlight=False)
    if options.json:
        out.print_json(data=_as_object(choice, written, form))
    else:
        out.print(_text(choice, written), markup=False, highlight=False)
    return 0


def _write(reader: Reader, choice: Choice, form: Format, path: Path | None) -> Written:
    with progress.status(f"reading {choice.num_spans:,} spans") as status:
        return export_trace(
            reader,
            choice,
            form=form,
            path=path,
            note_of=clock_note,
            told=lambda spans: status.update(f"writing {spans:,} of {choice.num_spans:,} spans"),
        )


def _notes(written: Written) -> list[str]:
    notes = [clock_note(written.alignment)]
    if written.left_out:
        notes.append(f"{count(written.left_out, 'arrow')} left out: by these clocks they would run against time.")
    return list(filter(None, notes))


def _text(choice: Choice, written: Written) -> str:
    steps = f"steps {written.first_step} to {written.last_step} of ranks {fold_ranks(written.ranks)}"
    arrows = count(written.transfers + written.collectives, "arrow")
    return (
        f"{printable(choice.run_id)}: {steps}: {count(written.spans, 'span')}, {arrows}\n"
        f"{written.path} ({size(written.size_bytes)}); open it with https://ui.perfetto.dev or chrome://tracing"
    )


def _as_object(choice: Choice, written: Written, form: Format) -> dict[str, object]:
    return {
        "schema": 1,
        "run": choice.run_id,
        "attempt": choice.attempt,
        "file": str(written.path),
        "format": form.value,
        "bytes": written.size_bytes,
        "first_step": written.first_step,
        "last_step": written.last_step,
        "ranks": written.ranks,
        "spans": written.spans,
        "flows": written.transfers + written.collectives,
        "transfers": written.transfers,
        "collectives": written.collectives,
        "flows_left_out": written.left_out,
        "marks": written.marks,
        "samples": written.samples,
        "clocks": {
            "hosts": written.alignment.num_hosts,
            "bound_ns": written.alignment.bound_ns,
            "unaligned": list(written.alignment.unaligned),
        },
    }
