"""`rankscope diagnose [RUN]`: what slows a run, which rank is to blame, since when, and what it costs."""

import time
from pathlib import Path
from typing import Annotated

import typer

from diagnose.commands.options import DEFAULT_STORE, AttemptOption, JsonOption, RunArgument, StoreOption, out
from diagnose.findings import StepWindow
from diagnose.load import newest_attempt
from diagnose.pipeline import Report, diagnose_run
from diagnose.report import report_object, report_text
from telemetry.errors import UsageError
from telemetry.readers import open_reader, open_spool
from telemetry.stores.reader import Reader

FirstStepOption = Annotated[int | None, typer.Option(help="Look at steps from this one on.", min=0, show_default=False)]
LastStepOption = Annotated[int | None, typer.Option(help="Look at steps up to this one.", min=0, show_default=False)]
SpoolOption = Annotated[Path | None, typer.Option(help="Read rank files here instead of a store.", show_default=False)]
WatchOption = Annotated[bool, typer.Option("--watch", help="Look again and again; print what changes. Ctrl-C ends it.")]
EveryOption = Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.2)]


def diagnose(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    first_step: FirstStepOption = None,
    last_step: LastStepOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
    watch: WatchOption = False,
    every: EveryOption = 5.0,
) -> None:
    """Explain what slows a run: findings, the worst first. Exit status 1 when there are any."""
    window = _window(first_step, last_step)
    with open_spool(spool) if spool else open_reader(store) as reader:
        if watch:
            _watch(reader, run, attempt, window, json, every)
        report = diagnose_run(reader, *newest_attempt(reader, run, attempt), window)
    _print(report, json)
    raise typer.Exit(report.exit_status)


def _window(first_step: int | None, last_step: int | None) -> StepWindow | None:
    if first_step is None and last_step is None:
        return None
    window = StepWindow(first_step=first_step or 0, last_step=2**31 - 1 if last_step is None else last_step)
    if window.first_step > window.last_step:
        raise UsageError(
            f"--first-step {window.first_step} comes after --last-step {window.last_step}", hint="swap the two"
        )
    return window


def _watch(
    reader: Reader, run: str | None, attempt: int | None, window: StepWindow | None, json: bool, every_s: float
) -> None:
    """Print a report whenever its verdict differs from the one before; returns on Ctrl-C."""
    said: tuple[object, ...] | None = None
    try:
        while True:
            report = diagnose_run(reader, *newest_attempt(reader, run, attempt), window)
            verdict = tuple((finding.kind, *finding.ranks) for finding in report.findings)
            if verdict != said:
                _print(report, json)
            said = verdict
            time.sleep(every_s)
    except KeyboardInterrupt:
        return


def _print(report: Report, json: bool) -> None:
    if json:
        out.print_json(data=report_object(report))
    else:
        out.print(report_text(report))
