"""The work of `rankscope diagnose [RUN]`: what slows a run, which rank causes it, since when, and what it costs."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from diagnose.findings import StepWindow
from diagnose.model.load import newest_attempt
from diagnose.pipeline import Report, diagnose_run
from diagnose.report import report_object, report_text
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.queries import LAST_STEP
from ui.cli.commands.diagnose import DiagnoseOptions
from ui.cli.output import out
from ui.cli.readers import open_reader, open_spool

Result = TypeVar("Result")


def watch(
    first: Result,
    read: Callable[[], Result],
    verdict: Callable[[Result], object],
    show: Callable[[Result], None],
    every_s: float,
) -> Result:
    """For ``--watch``: read again and again, and show each result whose verdict differs from the one before.

    Returns the last result on Ctrl-C. Retries if the store does not answer.
    """
    try:
        while True:
            time.sleep(every_s)
            with suppress(UnreachableError):
                newer = read()
                if verdict(newer) != verdict(first):
                    show(newer)
                first = newer
    except KeyboardInterrupt:
        return first


def diagnose(options: DiagnoseOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    if options.again and options.spool:
        raise UsageError("--watch with --spool", hint="rank files are read once; watch a collector, or leave one out")
    with open_spool(options.spool) if options.spool else open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        report = diagnose_run(reader, run_id, number, window)
        _print(report, options.json)
        if options.again:
            read = partial(diagnose_run, reader, run_id, number, window)
            report = watch(report, read, _verdict, lambda newer: _print(newer, options.json), options.every)
    return report.exit_status


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
