"""The work of `rankscope diagnose` and its subcommands.

diagnose [RUN]    what slows a run, which rank causes it, since when, and what it costs
hang [RUN]        why a job makes no progress, from a store, rank files or dumps
whatif [RUN]      what a slowdown costs, and what each fix would save
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from json import dumps as to_json
from typing import TypeVar

import typer

from diagnose.findings import Kind, StepWindow
from diagnose.hang.from_bodies import evidence_from_spool
from diagnose.hang.sources.combine import judge_together
from diagnose.hang.stored import verdict_or_nothing
from diagnose.hang.verdict import HangVerdict, judge
from diagnose.model.load import load_view, newest_attempt
from diagnose.model.run_state import heard_of
from diagnose.pipeline import Report, diagnose_run, stall_first
from diagnose.report import hang_object, hang_text, report_object, report_text, whatif_object, whatif_text
from diagnose.whatif.conclude import conclude
from telemetry.errors import UnreachableError, UsageError
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP
from ui.cli.commands.diagnose import DiagnoseOptions, HangOptions, WhatifOptions
from ui.cli.hang_sources import find_evidence, reads_files
from ui.cli.output import out
from ui.cli.readers import open_reader, open_spool

ReadVerdict = Callable[[], HangVerdict]


def hang(options: HangOptions) -> int:
    if options.spool and options.dumps:
        raise UsageError(
            "--spool does not work with --dumps", hint="use one of the two: rank files or flight-recorder dumps"
        )
    if reads_files(options) and options.again:
        named = "--dumps" if options.dumps else "files"
        raise UsageError(
            f"--watch does not work with {named}", hint="files do not change. Use --watch with a store or with --spool"
        )
    with ExitStack() as open_things:
        read = _verdict_reader(options, lambda: open_things.enter_context(open_reader(options.store)))
        verdict = read()
        _print_verdict(verdict, options.json)
        if options.again:
            verdict = watch(verdict, read, _result_of, lambda newer: _print_verdict(newer, options.json), options.every)
    return int(verdict.kind not in (None, Kind.INSUFFICIENT_EVIDENCE))


def _verdict_reader(options: HangOptions, reader: Callable[[], Reader]) -> ReadVerdict:
    """A function that reads the evidence again and returns a verdict."""
    if reads_files(options):
        return lambda: judge_together(find_evidence(options))
    run, attempt, spool = _only_run(options), options.attempt, options.spool
    if spool:
        return lambda: judge(evidence_from_spool(spool, run, attempt))
    opened = reader()
    run_id, number = newest_attempt(opened, run, attempt)
    return lambda: verdict_or_nothing(opened, run_id, number)


def _only_run(options: HangOptions) -> str | None:
    runs = options.run or []
    if len(runs) > 1:
        raise UsageError(f"{len(runs)} runs are given", hint="give one run. Put --logs before the names of log files")
    return runs[0] if runs else None


def _result_of(verdict: HangVerdict) -> object:
    return verdict.kind, verdict.initiating


def _print_verdict(verdict: HangVerdict, json: bool) -> None:
    if json:
        typer.echo(to_json(hang_object(verdict), indent=2))
    else:
        out.print(hang_text(verdict))


def whatif(options: WhatifOptions) -> int:
    window = step_window(options.first_step, options.last_step)
    with open_spool(options.spool) if options.spool else open_reader(options.store) as reader:
        conclusion = conclude(load_view(reader, *newest_attempt(reader, options.run, options.attempt), window))
        run_id, number = conclusion.report.run_id, conclusion.report.attempt
        report = stall_first(replace(conclusion.report, heard=heard_of(reader, run_id, number)), reader)
        conclusion = replace(conclusion, report=report)
    if options.json:
        out.print_json(data=whatif_object(conclusion))
    else:
        out.print(whatif_text(conclusion))
    return conclusion.report.exit_status


Result = TypeVar("Result")


def watch(
    first: Result,
    read: Callable[[], Result],
    verdict: Callable[[Result], object],
    show: Callable[[Result], None],
    every_s: float,
) -> Result:
    """For ``--watch``: read repeatedly, and show each result whose verdict differs from that of the previous result.

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
        raise UsageError(
            "--watch does not work with --spool", hint="files are read once. Use --watch with a collector, or omit it"
        )
    with open_spool(options.spool) if options.spool else open_reader(options.store) as reader:
        run_id, number = newest_attempt(reader, options.run, options.attempt)
        report = diagnose_run(reader, run_id, number, window)
        _print(report, options.json)
        if options.again:
            read = partial(diagnose_run, reader, run_id, number, window)
            report = watch(report, read, _verdict, lambda newer: _print(newer, options.json), options.every)
    return report.exit_status


def step_window(first_step: int | None, last_step: int | None) -> StepWindow | None:
    """The chosen steps. A number above the last possible step means this step."""
    if first_step is None and last_step is None:
        return None
    first, last = (min(step, LAST_STEP) for step in (first_step or 0, LAST_STEP if last_step is None else last_step))
    window = StepWindow(first_step=first, last_step=last)
    if window.first_step > window.last_step:
        raise UsageError(
            f"--first-step {window.first_step} is larger than --last-step {window.last_step}",
            hint="swap the two numbers",
        )
    return window


def _verdict(report: Report) -> list[tuple[object, ...]]:
    return [(finding.kind, *finding.ranks) for finding in report.findings]


def _print(report: Report, json: bool) -> None:
    if json:
        out.print_json(data=report_object(report))
    else:
        out.print(report_text(report))
