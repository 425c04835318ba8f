"""`rankscope diagnose [RUN]`: what slows a run, which rank is to blame, since when, and what it costs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from diagnose.findings import StepWindow
from diagnose.model.load import newest_attempt
from diagnose.pipeline import Report, diagnose_run
from diagnose.report import report_object, report_text
from telemetry.errors import UsageError
from telemetry.stores.queries import LAST_STEP
from ui.cli.options import DEFAULT_STORE, AttemptOption, JsonOption, RunArgument, StoreOption, out
from ui.cli.readers import open_reader, open_spool
from ui.cli.watching import EveryOption, WatchOption, watch

FirstStepOption = Annotated[int | None, typer.Option(help="Look at steps from this one on.", min=0, show_default=False)]
LastStepOption = Annotated[int | None, typer.Option(help="Look at steps up to this one.", min=0, show_default=False)]
SpoolOption = Annotated[Path | None, typer.Option(help="Read rank files here instead of a store.", show_default=False)]


def diagnose(
    run: RunArgument = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    first_step: FirstStepOption = None,
    last_step: LastStepOption = None,
    spool: SpoolOption = None,
    json: JsonOption = False,
    again: WatchOption = False,
    every: EveryOption = 5.0,
) -> None:
    """Explain what slows a run: findings, the worst first. Exit status 1 when there are any.

    A job that stands still: `rankscope diagnose hang`.
    """
    window = step_window(first_step, last_step)
    if again and spool:
        raise UsageError("--watch with --spool", hint="rank files are read once; watch a collector, or leave one out")
    with open_spool(spool) if spool else open_reader(store) as reader:
        run_id, number = newest_attempt(reader, run, attempt)
        report = diagnose_run(reader, run_id, number, window)
        _print(report, json)
        if again:
            look = partial(diagnose_run, reader, run_id, number, window)
            report = watch(report, look, _verdict, lambda newer: _print(newer, json), every)
    raise typer.Exit(report.exit_status)


def step_window(first_step: int | None, last_step: int | None) -> StepWindow | None:
    if first_step is None and last_step is None:
        return None
    window = StepWindow(first_step=first_step or 0, last_step=LAST_STEP if last_step is None else last_step)
    if window.first_step > window.last_step:
        raise UsageError(
            f"--first-step {window.first_step} comes after --last-step {window.last_step}", hint="swap the two"
        )
    return window


def _verdict(report: Report) -> list[tuple[object, ...]]:
    return [(finding.kind, *finding.ranks) for finding in report.findings]


def _print(report: Report, json: bool) -> None:
    if json:
        out.print_json(data=report_object(report))
    else:
        out.print(report_text(report))
