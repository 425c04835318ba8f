"""Reads evidence of a stall from files and sockets, without a store. `rankscope diagnose hang` combines it."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from diagnose.hang.dump import read_dumps
from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import evidence_from_spool
from diagnose.hang.from_dumps import evidence_from_dumps
from diagnose.hang.job_size import check_num_ranks
from diagnose.hang.sources.combine import Found
from diagnose.hang.sources.from_communicators import evidence_from_inspector, evidence_from_ras, is_same
from diagnose.hang.sources.from_logs import evidence_from_logs
from diagnose.hang.sources.from_stacks import read_stacks
from diagnose.hang.sources.read_logs import read_logs
from diagnose.hang.sources.read_ras import load_ras, read_ras
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import read_input
from ui.cli.commands.diagnose import HangOptions

BETWEEN_S = 3.0
"""Time between two samples of NCCL RAS. In a job that makes progress, a collective takes less time."""
ONE_SAMPLE = (
    "NCCL RAS: one file cannot show that the job makes no progress. Give a second file that ncclras wrote some seconds "
    "later"
)
MAX_INSPECTOR_BYTES = 2**30
MAX_INSPECTOR_FILES = 20_000


def reads_files(options: HangOptions) -> bool:
    """Whether the evidence comes from files or sockets that the options name, not from a store."""
    return any((options.dumps, options.logs, options.ras, options.stacks, options.inspector))


def find_evidence(options: HangOptions) -> list[Found]:
    """The evidence of each named source, the most precise one first.

    Raises:
        UsageError: a source does not exist.
        UnreadableError: no source can be read.
        UnreachableError: NCCL RAS does not answer.
    """
    more = options.run or []
    logs = [*(options.logs or []), *(more if options.logs else [])]
    stacks = [*(options.stacks or []), *(more if options.stacks and not options.logs else [])]
    if more and not (logs or stacks):
        raise UsageError(
            "a run cannot be combined with files of evidence", hint="omit the run, or the options that name files"
        )
    found: list[Found] = []
    unreadable: dict[str, UnreadableError] = {}
    for name, read in _readers(options, logs, stacks):
        try:
            found.append(Found(name=name, evidence=read()))
        except UnreadableError as error:
            unreadable[name] = error
    if not found:
        raise _together(unreadable)
    first, notes = found[0], [f"{name} not used: {error.message}" for name, error in unreadable.items()]
    return [replace(first, evidence=replace(first.evidence, notes=(*notes, *first.evidence.notes))), *found[1:]]


def _together(unreadable: Mapping[str, UnreadableError]) -> UnreadableError:
    """One error for all sources."""
    if len(unreadable) == 1:
        return next(iter(unreadable.values()))
    messages = (f"{name}: {error.message}" for name, error in unreadable.items())
    hints = (f"{name}: {error.hint}" for name, error in unreadable.items())
    return UnreadableError("; ".join(messages), hint="; ".join(hints))


def _readers(
    options: HangOptions, logs: list[str], stacks: list[str]
) -> Iterator[tuple[str, Callable[[], HangEvidence]]]:
    spool, dumps, ras, inspector = options.spool, options.dumps, options.ras, options.inspector
    num_ranks = options.world_size or 0
    if spool:
        yield "rank files", lambda: evidence_from_spool(spool, None, options.attempt)
    if dumps:
        yield "flight recorder", lambda: _dumps(dumps, num_ranks)
    if logs:
        yield "log", lambda: evidence_from_logs(read_logs(logs, sys.stdin.buffer), num_ranks)
    if ras:
        yield "NCCL RAS", lambda: _ras(ras)
    if stacks:
        yield "stacks", lambda: read_stacks(stacks, num_ranks)
    if inspector:
        yield "NCCL Inspector", lambda: evidence_from_inspector(_inspector_files(inspector))


def _dumps(folder: Path, num_ranks: int) -> HangEvidence:
    """Evidence from flight-recorder dumps. Dumps of NCCL list the members of the default group. Dumps of gloo do not
    show the number of ranks, so ``num_ranks`` is used for them."""
    evidence = evidence_from_dumps(read_dumps(folder))
    if num_ranks:
        check_num_ranks(num_ranks, 1 + max(evidence.ranks), "flight recorder")
    if not num_ranks or not evidence.guessed_size:
        return evidence
    return replace(evidence, world_size=num_ranks, guessed_size=False)


def _ras(places: list[str]) -> HangEvidence:
    """Evidence from two samples of NCCL RAS: two files, or the service read twice. If the samples differ, nothing is
    stalled. A single file does not show whether the job makes progress."""
    if len(places) > 2:
        raise UsageError("more than two samples of NCCL RAS", hint="use --ras FILE --ras FILE, or --ras HOST:PORT")
    evidence = evidence_from_ras(read_ras(load_ras(places[0]), places[0]))
    if len(places) == 1 and Path(places[0]).exists():
        return replace(evidence, may_move=True, notes=(*evidence.notes, ONE_SAMPLE))
    if len(places) == 1:
        time.sleep(BETWEEN_S)
    newer = evidence_from_ras(read_ras(load_ras(places[-1]), places[-1]))
    if is_same(evidence, newer):
        return newer
    note = "NCCL RAS: the job makes progress, because ranks launched operations between the two samples"
    return HangEvidence(world_size=newer.world_size, groups=(), ranks={}, notes=(note,))


def _inspector_files(place: Path) -> Iterator[tuple[str, bytes]]:
    paths = sorted(place.rglob("*"))[:MAX_INSPECTOR_FILES] if place.is_dir() else [place]
    for path in paths:
        if path.is_file() or path == place:
            try:
                yield path.name, read_input(path, max_bytes=MAX_INSPECTOR_BYTES)
            except OSError as error:
                raise UsageError(
                    f"{path}: {error.strerror}", hint="use --inspector with a folder or a file of NCCL Inspector"
                ) from None
