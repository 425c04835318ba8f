"""The work of `rankscope export perfetto`: write steps of a run as a trace that other tools open."""

from collections.abc import Sequence
from pathlib import Path

from diagnose.findings import StepWindow
from diagnose.model.load import newest_attempt
from diagnose.profiles import stored_profiles
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import MAX_SPANS, Choice, choose, ranks_among
from diagnose.trace.export import Format, Written, WrittenProfile, export_trace
from diagnose.trace.profiles import ProfiledRun, RankProfile, chosen_profiles
from telemetry.printable import printable
from telemetry.stores.interface import Reader
from ui.cli.commands.export import PerfettoOptions
from ui.cli.diagnose import step_window
from ui.cli.output import out, progress
from ui.cli.readers import open_reader
from ui.dashboard.pages.timeline.selection import clock_note
from ui.dashboard.wording import count, duration, size


def export_perfetto(options: PerfettoOptions) -> int:
    window, form = step_window(options.first_step, options.last_step), Format(options.form)
    with open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        profiles: Sequence[RankProfile] = ()
        if options.profiles or options.kineto:
            profiles, window = _profiles(reader, run_id, number, window, options)
        choice = choose(reader, run_id, number, window=window, ranks=options.ranks, hosts=options.host or ())
        written = _write(reader, choice, form, options.out_file, profiles)
    for note in _notes(choice, written):
        progress.print(note, markup=False, highlight=False)
    if options.json:
        out.print_json(data=_summary(choice, written, form))
    else:
        out.print(_text(choice, written), markup=False, highlight=False)
    return 0


def _profiles(
    reader: Reader, run_id: str, number: int, window: StepWindow | None, options: PerfettoOptions
) -> tuple[list[RankProfile], StepWindow]:
    """The Kineto traces to add, and the steps to export."""
    ranks, world_size = ranks_among(reader, run_id, number, ranks=options.ranks, hosts=options.host or ())
    run = ProfiledRun(reader=reader, run_id=run_id, attempt=number, world_size=world_size)
    found: list[RankProfile] = []
    with progress.status("reading profiles"):
        if options.kineto:
            found += run.from_files(options.kineto, MAX_SPANS)
        if options.profiles:
            stored = chosen_profiles(stored_profiles(reader, run_id, number), ranks, window)
            found += run.from_store(stored, MAX_SPANS)
        return found, window or run.steps_of(found)


def _write(reader: Reader, choice: Choice, form: Format, path: Path | None, profiles: Sequence[RankProfile]) -> Written:
    with progress.status(f"reading {choice.num_spans:,} spans") as status:
        return export_trace(
            reader,
            choice,
            form=form,
            path=path,
            note_of=clock_note,
            profiles=profiles,
            on_progress=lambda spans: status.update(f"writing {spans:,} of {choice.num_spans:,} spans"),
        )


def _notes(choice: Choice, written: Written) -> list[str]:
    notes = [clock_note(written.alignment)]
    if written.left_out:
        notes.append(
            f"{count(written.left_out, 'arrow')} left out, because the clocks of the hosts are not exact enough for "
            "them."
        )
    notes += [_profile_note(profile, choice.hosts[profile.rank]) for profile in written.profiles]
    return list(filter(None, notes))


def _profile_note(profile: WrittenProfile, host: str) -> str:
    if profile.host not in ("", host):
        clock = f"recorded on host {printable(profile.host)}, not {printable(host)}: times of the profile can be wrong"
    elif profile.clock_error_ns is None:
        clock = "its clock was not compared with the clock of the run"
    else:
        clock = f"its clock is within {duration(profile.clock_error_ns)} of the spans of the rank"
    return f"rank {profile.rank}: {count(profile.events, 'event')} of {printable(profile.source)}; {clock}."


def _text(choice: Choice, written: Written) -> str:
    steps = f"steps {written.first_step} to {written.last_step} of ranks {fold_ranks(written.ranks)}"
    arrows = count(written.transfers + written.collectives, "arrow")
    return (
        f"{printable(choice.run_id)}: {steps}: {count(written.spans, 'span')}, {arrows}\n"
        f"{written.path} ({size(written.size_bytes)}); open it with https://ui.perfetto.dev or chrome://tracing"
    )


def _summary(choice: Choice, written: Written, form: Format) -> dict[str, object]:
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
        "profiles": [
            {
                "rank": profile.rank,
                "source": profile.source,
                "events": profile.events,
                "flows": profile.flows,
                "clock_error_ns": profile.clock_error_ns,
            }
            for profile in written.profiles
        ],
        "clocks": {
            "hosts": written.alignment.num_hosts,
            "bound_ns": written.alignment.bound_ns,
            "unaligned": list(written.alignment.unaligned),
        },
    }
