"""The work of `rankscope diagnose hang`: why a job makes no progress, from a store, rank files or dumps."""

from collections.abc import Callable
from contextlib import ExitStack
from json import dumps as to_json

import typer

from diagnose.findings import Kind
from diagnose.hang.dump import read_dumps
from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import evidence_from_spool
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict, judge
from diagnose.model.load import newest_attempt
from diagnose.report import hang_object, hang_text
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from ui.cli.commands.diagnose import HangOptions
from ui.cli.diagnose import watch
from ui.cli.output import out
from ui.cli.readers import open_reader

Look = Callable[[], HangVerdict]


def hang(options: HangOptions) -> int:
    if options.spool and options.dumps:
        raise UsageError("--spool with --dumps", hint="rank files or flight-recorder dumps: one of the two")
    if options.dumps and options.again:
        raise UsageError("--watch with --dumps", hint="dumps are read once; watch a collector or a spool")
    with ExitStack() as open_things:
        look = _look(options, lambda: open_things.enter_context(open_reader(options.store)))
        verdict = look()
        _print(verdict, options.json)
        if options.again:
            verdict = watch(verdict, look, _accusation, lambda newer: _print(newer, options.json), options.every)
    return int(verdict.kind not in (None, Kind.INSUFFICIENT_EVIDENCE))


def _look(options: HangOptions, reader: Callable[[], Reader]) -> Look:
    """A function that reads the evidence again and returns a verdict."""
    run, attempt, spool, dumps = options.run, options.attempt, options.spool, options.dumps
    if dumps:
        return lambda: judge(evidence_from_dumps(read_dumps(dumps)))
    if spool:
        return lambda: judge(evidence_from_spool(spool, run, attempt))
    asked = reader()
    run_id, number = newest_attempt(asked, run, attempt)
    return lambda: stored_verdict(asked, run_id, number) or judge(_nothing(run_id, number))


def _nothing(run_id: str, attempt: int) -> HangEvidence:
    return HangEvidence(world_size=0, groups=(), ranks={}, run_id=run_id, attempt=attempt)


def _accusation(verdict: HangVerdict) -> object:
    return verdict.kind, verdict.initiating


def _print(verdict: HangVerdict, json: bool) -> None:
    if json:
        typer.echo(to_json(hang_object(verdict), indent=2))
    else:
        out.print(hang_text(verdict))
