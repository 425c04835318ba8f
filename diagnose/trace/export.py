"""Write a window of a run into a file: survey, clocks, then one rank after another.

``Trace`` is the interface between drawings and file formats. It has two implementations: ``json_trace.JsonTrace`` and
``protobuf_trace.ProtobufTrace``. Tests need no third, because drawings are plain values.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from diagnose.model.host_clocks import Alignment, ReferenceClock, known_clocks
from diagnose.ranges import fold_ranks
from diagnose.trace.choice import MAX_SPANS, Choice
from diagnose.trace.draw import Flights, RankPainter, SamplesAndMarks, flights
from diagnose.trace.draw_profile import DrawnProfile, ProfilePainter, profiles_within
from diagnose.trace.drawing import Instant, Process, ProfileDrawing, RankDrawing, RunDrawing, Words
from diagnose.trace.json_trace import JsonTrace
from diagnose.trace.profiles import RankProfile
from diagnose.trace.survey import Survey, rank_by_rank, survey
from diagnose.trace.whole_file import whole_file
from telemetry.clocks.align_evidence import ClockTable
from telemetry.errors import UsageError
from telemetry.stores.interface import Reader
from telemetry.topology import MAX_RANKS


class Trace(Protocol):
    """Writes a trace to a binary file. The caller opens and closes the file. Every method may block.

    Raises:
        OSError: from every method, if the file cannot be written.
    """

    def add_run(self, run: RunDrawing) -> None:
        """Write the data that belongs to no rank. This is called first, and once."""

    def add_rank(self, rank: RankDrawing) -> None:
        """Write a rank."""

    def add_profile(self, profile: ProfileDrawing) -> None:
        """Write a Kineto trace. Its rank is written before it."""

    def end(self) -> None:
        """Write the end of the trace."""


RUN_PID = MAX_RANKS + 1
"""Number of the process of the run. It is larger than the number of any rank."""


class Format(StrEnum):
    """File formats of a trace."""

    JSON = "json"
    PROTOBUF = "protobuf"


ENDINGS = {Format.JSON: ".json.gz", Format.PROTOBUF: ".perfetto-trace"}


def can_write(form: Format) -> bool:
    """Whether the package that a format needs is installed."""
    return form is Format.JSON or find_spec("perfetto") is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenProfile:
    """The part of a Kineto trace that is in a file."""

    rank: int
    source: str
    events: int
    flows: int
    host: str
    """Host on which the Kineto trace was recorded. Empty: unknown."""
    clock_error_ns: int | None
    """How far its times can differ from those of the rank's spans. None: not measured."""


@dataclass(slots=True, kw_only=True)
class Written:
    """The content of a written file."""

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
    """Arrows that were omitted, because with these clocks they would end before they begin."""
    marks: int
    samples: int
    size_bytes: int
    alignment: Alignment
    profiles: list[WrittenProfile]


def export_trace(
    reader: Reader,
    choice: Choice,
    *,
    form: Format,
    path: Path | None = None,
    folder: Path = Path(),
    note_of: Callable[[Alignment], str],
    on_progress: Callable[[int], None] = lambda _: None,
    profiles: Sequence[RankProfile] = (),
    max_spans: int = MAX_SPANS,
) -> Written:
    """Write the trace of ``choice``. At a time, some hundred thousand spans and all arrows are in memory.

    Args:
        path: None: ``RUN-steps-A-B`` in ``folder``, with the ending of its format.
        note_of: returns a note about the clocks.
        on_progress: called with the number of spans written so far.
        profiles: Kineto traces of exported ranks. Their events in the exported steps are written.
        max_spans: limit of the spans and the events of ``profiles`` together.

    Raises:
        UsageError: the file cannot be written, the format needs a package that is missing, or a profile does not
            belong to the exported ranks and steps, or is too large.
        UnreachableError: the store does not answer.
    """
    begun = _form(form)
    scene = _scene(reader, choice, note_of, profiles, max_spans)
    choice, seen, arrows = scene.choice, scene.seen, scene.arrows
    path = path or folder / (_file_name(choice.run_id, seen) + ENDINGS[form])
    painter = RankPainter(choice, scene.clock, arrows, scene.marks)
    profile_painter = ProfilePainter(choice, scene.clock, len(arrows.ends) + 1)
    num_spans, ranks, drawn = 0, list[int](), list[WrittenProfile]()
    with whole_file(path) as file:
        trace = begun(file, scene.run.about)
        trace.add_run(scene.run)
        for spans in rank_by_rank(reader, choice):
            trace.add_rank(painter.draw(spans))
            ranks.append(int(spans.rank[0]))
            num_spans += len(spans)
            drawn += _add_profiles(trace, profile_painter, scene.profiles.get(ranks[-1], ()))
            on_progress(num_spans)
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
        profiles=drawn,
    )


def _add_profiles(trace: Trace, painter: ProfilePainter, profiles: Sequence[DrawnProfile]) -> list[WrittenProfile]:
    """Write the profiles of one rank."""
    drawings = [painter.draw(profile) for profile in profiles]
    for drawing in drawings:
        trace.add_profile(drawing)
    return [_written(drawn.profile, drawing) for drawn, drawing in zip(profiles, drawings, strict=True)]


def _written(profile: RankProfile, drawing: ProfileDrawing) -> WrittenProfile:
    return WrittenProfile(
        rank=profile.rank,
        source=profile.source,
        events=len(drawing.name),
        flows=len(drawing.leaving.number),
        host=profile.events.host,
        clock_error_ns=profile.clock_error_ns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """All data that is needed before the first rank is drawn."""

    choice: Choice
    seen: Survey
    clock: ReferenceClock
    arrows: Flights
    run: RunDrawing
    marks: dict[int, tuple[Instant, ...]]
    profiles: dict[int, list[DrawnProfile]]


def _scene(
    reader: Reader,
    choice: Choice,
    note_of: Callable[[Alignment], str],
    profiles: Sequence[RankProfile],
    max_spans: int,
) -> _Scene:
    seen = survey(reader, choice)
    within = profiles_within(profiles, choice, seen.reach, max_spans)
    choice = replace(choice, last_step=seen.last_step, newest_step=min(choice.newest_step, seen.last_step))
    samples_and_marks = SamplesAndMarks(reader, choice, seen)
    more_hosts = samples_and_marks.reach()
    clock = ReferenceClock(_clocks(reader, choice, seen), seen.reach, more_hosts)
    arrows = flights(seen.ends, clock, choice.hosts)
    begins = [(choice.hosts[rank], drawn.first_ns) for rank, of_rank in within.items() for drawn in of_rank]
    run = RunDrawing(
        process=Process(pid=RUN_PID, name=f"run {choice.run_id} · attempt {choice.attempt}", order=0),
        about=Instant(
            at_ns=_first_ns([*_first_times(seen.reach), *_first_times(more_hosts), *begins], clock),
            name="rankscope",
            words=_about(choice, seen, arrows, note_of(clock.alignment)),
        ),
        counters=samples_and_marks.counters(clock),
        instants=samples_and_marks.not_finite(clock),
    )
    marks = samples_and_marks.marks(clock)
    return _Scene(choice=choice, seen=seen, clock=clock, arrows=arrows, run=run, marks=marks, profiles=within)


def _form(form: Format) -> Callable[[BinaryIO, Instant], Trace]:
    """The class that writes a format. Its arguments: the file, and an instant event whose words describe the trace."""
    if form is Format.JSON:
        return JsonTrace
    try:
        from diagnose.trace.protobuf_trace import ProtobufTrace  # noqa: PLC0415 - perfetto is an optional extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the perfetto package is not installed: {error}",
            hint="pip install 'rankscope[perfetto]', or use --format json",
        ) from error
    return ProtobufTrace


def _clocks(reader: Reader, choice: Choice, seen: Survey) -> ClockTable:
    steps = np.array([seen.first_step, seen.last_step])
    return known_clocks(reader, choice.run_id, choice.attempt, steps, np.array([seen.step_ns]))


def _first_ns(times: list[tuple[str, int]], clock: ReferenceClock) -> int:
    """The earliest of ``times``, on the reference clock. ``times``: host, and a time by its clock."""
    return min(int(clock.aligned(np.array([at_ns]), host)[0]) for host, at_ns in times)


def _first_times(reach: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int]]:
    return ((host, first) for host, (first, _) in reach.items())


def _about(choice: Choice, seen: Survey, arrows: Flights, clocks: str) -> Words:
    left_out = {"arrows omitted": arrows.num_backward} if arrows.num_backward else {}
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
    """The file name for a run. Characters other than letters, digits, dots, dashes and underscores are replaced."""
    name = re.sub(r"[^\w.-]", "_", run_id).lstrip(".-") or "run"
    return f"{name[:200]}-steps-{seen.first_step}-{seen.last_step}"
