"""`rankscope export perfetto`: a window of a run as a trace that other tools open."""

from pathlib import Path
from typing import Annotated

import typer

from diagnose.model.load import newest_attempt
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice, choose
from diagnose.trace.export import Format, Written, export_trace
from telemetry.printable import printable
from telemetry.stores.interface import Reader
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
from ui.dashboard.one_clock import clock_note
from ui.dashboard.wording import count, size

RanksOption = Annotated[str, typer.Option(help="Only these ranks, such as 0-7,12; all when left out.", metavar="LIST")]
HostOption = Annotated[
    list[str] | None, typer.Option("--host", help="Only the ranks of this host; may be repeated.", show_default=False)
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File to write, packed where its name ends in .gz. RUN-steps-A-B.json.gz (.perfetto-trace) when left out.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Format,
    typer.Option("--format", help="json: Chrome's, opens everywhere. protobuf: Perfetto's own; needs its package."),
]


def export_perfetto(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    first_step: FirstStepOption = None,
    last_step: LastStepOption = None,
    ranks: RanksOption = "",
    host: HostOption = None,
    out_file: OutOption = None,
    form: FormatOption = Format.JSON,
    json: JsonOption = False,
) -> None:
    """Write steps of a run as a trace for Perfetto (ui.perfetto.dev), chrome://tracing and like tools.

    The newest ten steps when no window is asked for.
    """
    window = step_window(first_step, last_step)
    with open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        choice = choose(reader, run_id, number, window=window, ranks=ranks, hosts=host or ())
        written = _write(reader, choice, form, out_file)
    for note in _notes(written):
        progress.print(note, markup=False, highlight=False)
    if json:
        out.print_json(data=_told(choice, written, form))
    else:
        out.print(_text(choice, written), markup=False, highlight=False)


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


def _told(choice: Choice, written: Written, form: Format) -> dict[str, object]:
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
