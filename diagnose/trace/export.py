"""A window of a run into a file: survey, clocks, then rank by rank onto the disk."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

import numpy as np

from diagnose.model.host_clocks import load_clocks
from diagnose.model.reference_clock import Alignment, ReferenceClock
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import Choice
from diagnose.trace.draw import Draughtsman, Flights, flights
from diagnose.trace.drawing import Instant, Process, RunDrawing, Words
from diagnose.trace.interface import Trace
from diagnose.trace.json_trace import JsonTrace
from diagnose.trace.reading import rank_by_rank
from diagnose.trace.run_drawing import Told
from diagnose.trace.survey import Survey, survey
from diagnose.trace.whole_file import whole_file
from telemetry.clocks.align_table import ClockTable
from telemetry.errors import UsageError
from telemetry.stores.reader import Reader
from telemetry.topology import MAX_RANKS

RUN_PID = MAX_RANKS + 1
"""Beyond every rank."""


class Format(StrEnum):
    """Forms of a trace."""

    JSON = "json"
    PROTOBUF = "protobuf"


ENDINGS = {Format.JSON: ".json.gz", Format.PROTOBUF: ".perfetto-trace"}


def can_write(form: Format) -> bool:
    """Whether what a form needs is installed."""
    return form is Format.JSON or find_spec("perfetto") is not None


@dataclass(slots=True, kw_only=True)
class Written:
    """What went into a file."""

    path: Path
    first_step: int
    last_step: int
    ranks: list[int]
    spans: int
    transfers: int
    """Arrows from a send to its receive."""
    collectives: int
    """Arrows from the last member of a collective to another one."""
    left_out: int
    """Arrows that would run against time, by the clocks as they are known."""
    marks: int
    samples: int
    size_bytes: int
    alignment: Alignment


def export_trace(
    reader: Reader,
    choice: Choice,
    *,
    form: Format,
    path: Path | None = None,
    folder: Path = Path(),
    note_of: Callable[[Alignment], str],
    told: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the trace of ``choice``. Holds some hundred thousand spans at a time, and the arrows of all.

    Args:
        path: None: ``RUN-steps-A-B`` in ``folder``, with the ending of its form.
        note_of: what to say of the clocks.
        told: is told the number of spans written so far.

    Raises:
        UsageError: the file cannot be written, or the form needs a package that is missing.
        UnreachableError: the store does not answer.
    """
    begun = _form(form)
    scene = _scene(reader, choice, note_of)
    choice, seen, arrows = scene.choice, scene.seen, scene.arrows
    path = path or folder / (_file_name(choice.run_id, seen) + ENDINGS[form])
    painter = Draughtsman(choice, scene.clock, arrows, scene.marks)
    num_spans, ranks = 0, []
    with whole_file(path) as file:
        trace = begun(file, scene.run.about)
        trace.add_run(scene.run)
        for spans in rank_by_rank(reader, choice):
            trace.add_rank(painter.draw(spans))
            ranks.append(int(spans.rank[0]))
            num_spans += len(spans)
            told(num_spans)
        trace.end()
    return Written(
        path=path,
        first_step=seen.first_step,
        last_step=seen.last_step,
        ranks=ranks,
        spans=num_spans,
        transfers=int((arrows.ends.transfer == 1).sum()),
        collectives=int((arrows.ends.transfer == 0).sum()),
        left_out=arrows.num_backward,
        marks=sum(map(len, scene.marks.values())),
        samples=sum(len(one.at_ns) for one in scene.run.counters),
        size_bytes=path.stat().st_size,
        alignment=scene.clock.alignment,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """All that has to be known before the first rank is drawn."""

    choice: Choice
    seen: Survey
    clock: ReferenceClock
    arrows: Flights
    run: RunDrawing
    marks: dict[int, tuple[Instant, ...]]


def _scene(reader: Reader, choice: Choice, note_of: Callable[[Alignment], str]) -> _Scene:
    seen = survey(reader, choice)
    choice = replace(choice, last_step=seen.last_step, newest_step=min(choice.newest_step, seen.last_step))
    told = Told(reader, choice, seen)
    beside = told.reach()
    clock = ReferenceClock(_clocks(reader, choice, seen), seen.reach, beside)
    arrows = flights(seen.ends, clock, choice.hosts)
    run = RunDrawing(
        process=Process(pid=RUN_PID, name=f"run {choice.run_id} · attempt {choice.attempt}", order=0),
        about=Instant(
            at_ns=_first_ns([*seen.reach.items(), *beside.items()], clock),
            name="rankscope",
            words=_about(choice, seen, arrows, note_of(clock.alignment)),
        ),
        counters=told.counters(clock),
        instants=told.not_finite(clock),
    )
    return _Scene(choice=choice, seen=seen, clock=clock, arrows=arrows, run=run, marks=told.marks(clock))


def _form(form: Format) -> Callable[[BinaryIO, Instant], Trace]:
    """What writes this form, from a file and the instant that tells what the trace is."""
    if form is Format.JSON:
        return JsonTrace
    try:
        from diagnose.trace.protobuf_trace import ProtobufTrace  # noqa: PLC0415 - perfetto is an optional extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"no Perfetto package here: {error}",
            hint="pip install 'rankscope[perfetto]' brings it; --format json needs none",
        ) from error
    return ProtobufTrace


def _clocks(reader: Reader, choice: Choice, seen: Survey) -> ClockTable:
    steps = np.array([seen.first_step, seen.last_step])
    return load_clocks(reader, choice.run_id, choice.attempt, steps, np.array([seen.step_ns]))


def _first_ns(reach: list[tuple[str, tuple[int, int]]], clock: ReferenceClock) -> int:
    """The first stamp of all."""
    return min(int(clock.aligned(np.array([first]), host)[0]) for host, (first, _) in reach)


def _about(choice: Choice, seen: Survey, arrows: Flights, clocks: str) -> Words:
    left_out = {"arrows left out": arrows.num_backward} if arrows.num_backward else {}
    return {
        "run": choice.run_id,
        "attempt": choice.attempt,
        "first step": seen.first_step,
        "last step": seen.last_step,
        "ranks": fold_ranks(choice.ranks),
        **({"clocks": clocks} if clocks else {}),
        **left_out,
    }


def _file_name(run_id: str, seen: Survey) -> str:
    """What is no letter, digit, dot, dash or underscore could lead elsewhere."""
    name = re.sub(r"[^\w.-]", "_", run_id).lstrip(".-") or "run"
    return f"{name[:200]}-steps-{seen.first_step}-{seen.last_step}"
