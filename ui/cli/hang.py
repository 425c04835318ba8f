"""`rankscope diagnose hang`: why a job stands still, from whatever is at hand."""

from collections.abc import Callable
from contextlib import ExitStack
from json import dumps as to_json
from pathlib import Path
from typing import Annotated

import typer

from diagnose.findings import Kind
from diagnose.hang.dump_files import read_dumps
from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import evidence_from_spool
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.judge import judge
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict
from diagnose.model.load import newest_attempt
from diagnose.report import hang_object, hang_text
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from ui.cli.options import DEFAULT_STORE, AttemptOption, JsonOption, RunArgument, StoreOption, out
from ui.cli.readers import open_reader
from ui.cli.watching import EveryOption, WatchOption, watch

SpoolOption = Annotated[
    Path | None,
    typer.Option(help="Look at the rank files here, of a live job or a dead one: no store needed.", show_default=False),
]
DumpsOption = Annotated[
    Path | None,
    typer.Option(help="Read PyTorch flight-recorder dumps here, of any job, whatever their names.", show_default=False),
]

Look = Callable[[], HangVerdict]


def hang(
    run: RunArgument = None,
    spool: SpoolOption = None,
    dumps: DumpsOption = None,
    store: StoreOption = DEFAULT_STORE,
    attempt: AttemptOption = None,
    json: JsonOption = False,
    again: WatchOption = False,
    every: EveryOption = 2.0,
) -> None:
    """Say which ranks hold a stalled job up, in which collective, and where they stand. Exit status 1 when any do."""
    if spool and dumps:
        raise UsageError("--spool with --dumps", hint="rank files or flight-recorder dumps: one of the two")
    if dumps and again:
        raise UsageError("--watch with --dumps", hint="dumps are read once; watch a collector or a spool")
    with ExitStack() as open_things:
        look = _look(run, attempt, spool, dumps, lambda: open_things.enter_context(open_reader(store)))
        verdict = look()
        _print(verdict, json)
        if again:
            verdict = watch(verdict, look, _accusation, lambda newer: _print(newer, json), every)
    raise typer.Exit(int(verdict.kind not in (None, Kind.INSUFFICIENT_EVIDENCE)))


def _look(
    run: str | None, attempt: int | None, spool: Path | None, dumps: Path | None, reader: Callable[[], Reader]
) -> Look:
    """How to come to a verdict, again and again."""
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
