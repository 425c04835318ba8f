"""What a page shows, as its address holds it: a link to a view restores the view.

    ?view=heatmap&run=demo&attempt=0&stage=forward-compute&metric=ratio&time=own&steps=100-199
    ?view=heatmap&run=demo&attempt=0&steps=100-                     step 100 and all that follow
    ?view=timeline&run=demo&attempt=0&group=pp&rank=5&step=150&span=5-1042
    ?view=timeline&run=demo&step=150&zoom=1200000-9800000&pins=5.4&area=1300000-2000000-5-6
    ?view=timeline&run=demo&step=150&ideal=shown                    with the ideal timeline below the real one
    ?view=hang&run=demo&attempt=0&rank=5
    ?view=grid&run=demo&attempt=0&rank=5&colour=blame&form=3d
    ?view=whatif&run=demo&attempt=0&steps=100-199
    ?view=fleet&run=demo&attempt=0&host=gpu-003&family=gpu&steps=100-199
    ?view=clock&run=demo&attempt=0&host=gpu-003
    ?view=runs&find=gpt&order=mfu
    ?view=alerts&run=demo                                           of one run; without it of all

What an address leaves out takes its default and follows a live run; what it says wrongly takes its default too,
with a note for the reader. No text of an address is ever shown as anything but text.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from telemetry.stages import STAGE_BY_LABEL, Stage

MAX_NAME = 256
"""Characters of a host's name or a search; what is longer is refused."""
LARGEST = 2**32 - 1
"""The largest rank, step or attempt a store can hold."""
SHOWN = "shown"
"""What an address says of something that is shown only where it is asked for."""
MAX_PINS = 8
"""Ranks that are kept at the top of a timeline."""

Value = TypeVar("Value")


class View(StrEnum):
    """The pages."""

    RUNS = "runs"
    OVERVIEW = "overview"
    HEAT_MAP = "heatmap"
    TIMELINE = "timeline"
    GRID = "grid"
    HANG = "hang"
    WHAT_IF = "whatif"
    FLEET = "fleet"
    CLOCK = "clock"
    ALERTS = "alerts"


class RunOrder(StrEnum):
    """Which runs come first in their list."""

    TROUBLE = "trouble"
    NAME = "name"
    STEP_TIME = "step-time"
    MFU = "mfu"
    GOODPUT = "goodput"
    RANKS = "ranks"
    STARTED = "started"


class Metric(StrEnum):
    """What colours stand for where they show a stage."""

    RATIO = "ratio"
    MILLISECONDS = "ms"
    SHARE = "share"
    WAIT = "wait"
    """What others waited for a rank, of the step."""


class Colour(StrEnum):
    """What the colours of the grid stand for."""

    STATE = "state"
    BLAME = "blame"
    METRIC = "metric"


class Form(StrEnum):
    """How the grid is drawn: cut into slices side by side, or as a body that can be turned."""

    SLICES = "slices"
    BODY = "3d"


class Clock(StrEnum):
    """Which time of a stage counts: the rank's own work, or all that passed on the wall."""

    OWN = "own"
    WALL = "wall"


class Group(StrEnum):
    """Which ranks the timeline shows: the group of a rank along an axis of the grid, or all."""

    PP = "pp"
    DP = "dp"
    TP = "tp"
    ALL = "all"


class Family(StrEnum):
    """Which samples of a host the fleet page shows."""

    NETWORK = "network"
    GPU = "gpu"
    HOST = "host"


class SpanKey(NamedTuple):
    """A span's name within an attempt."""

    rank: int
    seq: int


class StepRange(NamedTuple):
    """Steps from ``first`` to ``last``, both included; ``last`` of LARGEST follows a live run."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-" if self.last == LARGEST else f"{self.first}-{self.last}"


class TimeRange(NamedTuple):
    """A stretch of the timeline, in nanoseconds from the earliest span that it shows."""

    first_ns: int
    last_ns: int

    def __str__(self) -> str:
        return f"{self.first_ns}-{self.last_ns}"


class Area(NamedTuple):
    """A stretch of some neighbouring rows of the timeline: times as in ``TimeRange``, ranks of the outer rows."""

    first_ns: int
    last_ns: int
    top: int
    bottom: int

    def __str__(self) -> str:
        return "-".join(map(str, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Everything that decides what is on the page. None: not said, so the newest or the obvious one."""

    view: View = View.RUNS
    run: str = ""
    attempt: int | None = None
    stage: Stage = Stage.FORWARD_COMPUTE
    metric: Metric = Metric.RATIO
    clock: Clock = Clock.OWN
    colour: Colour = Colour.STATE
    form: Form = Form.SLICES
    steps: StepRange | None = None
    group: Group | None = None
    rank: int | None = None
    step: int | None = None
    span: SpanKey | None = None
    zoom: TimeRange | None = None
    pins: tuple[int, ...] = ()
    area: Area | None = None
    ideal: bool = False
    host: str = ""
    family: Family | None = None
    find: str = ""
    order: RunOrder = RunOrder.TROUBLE

    def search(self) -> str:
        """The address of this view, from its ``?`` on; the inverse of :func:`parse_search`."""
        values = {
            "view": self.view.value,
            "run": self.run or None,
            "attempt": self.attempt,
            "stage": None if self.stage is Stage.FORWARD_COMPUTE else self.stage.label,
            "metric": None if self.metric is Metric.RATIO else self.metric.value,
            "time": None if self.clock is Clock.OWN else self.clock.value,
            "colour": None if self.colour is Colour.STATE else self.colour.value,
            "form": None if self.form is Form.SLICES else self.form.value,
            "steps": self.steps and str(self.steps),
            "group": self.group and self.group.value,
            "rank": self.rank,
            "step": self.step,
            "span": self.span and f"{self.span.rank}-{self.span.seq}",
            "zoom": self.zoom and str(self.zoom),
            "pins": ".".join(map(str, self.pins)) or None,
            "area": self.area and str(self.area),
            "ideal": SHOWN if self.ideal else None,
            "host": self.host or None,
            "family": self.family and self.family.value,
            "find": self.find or None,
            "order": None if self.order is RunOrder.TROUBLE else self.order.value,
        }
        return "?" + urlencode({name: value for name, value in values.items() if value is not None})


class Parsed(NamedTuple):
    """A view and what was wrong with its address."""

    state: ViewState
    notes: tuple[str, ...]


def parse_search(search: str | None) -> Parsed:
    """The view an address asks for. Never raises: what cannot be read takes its default and adds a note."""
    given = dict(parse_qsl((search or "").lstrip("?")[:4000], max_num_fields=None, errors="replace"))
    notes: list[str] = []
    read = _Fields(given, notes)
    run = given.get("run", "")  # any text: a name that no run has must not lead to another run
    state = ViewState(
        view=read("view", View, View.OVERVIEW if run else View.RUNS),
        run=run,
        attempt=read("attempt", _number, None),
        stage=read("stage", _stage, Stage.FORWARD_COMPUTE),
        metric=read("metric", Metric, Metric.RATIO),
        clock=read("time", Clock, Clock.OWN),
        colour=read("colour", Colour, Colour.STATE),
        form=read("form", Form, Form.SLICES),
        steps=read("steps", _steps, None),
        group=read("group", Group, None),
        rank=read("rank", _number, None),
        step=read("step", _number, None),
        span=read("span", _span, None),
        zoom=read("zoom", _zoom, None),
        pins=read("pins", _pins, ()),
        area=read("area", _area, None),
        ideal=read("ideal", _is_shown, False),
        host=read("host", _name, ""),
        family=read("family", Family, None),
        find=read("find", _name, ""),
        order=read("order", RunOrder, RunOrder.TROUBLE),
    )
    return Parsed(state, tuple(notes))


class _Fields:
    """Reads fields of an address one by one, and notes those that cannot be read."""

    def __init__(self, given: Mapping[str, str], notes: list[str]) -> None:
        self._given = given
        self._notes = notes

    def __call__(self, name: str, convert: Callable[[str], Value], default: Value) -> Value:
        text = self._given.get(name, "")
        if not text:
            return default
        try:
            return convert(text)
        except (ValueError, KeyError):
            shown = text if len(text) <= 40 else text[:40] + "…"
            self._notes.append(f"{name}={shown} in the address is not valid; the default is shown")
            return default


def _name(text: str) -> str:
    if len(text) > MAX_NAME or not text.isprintable():
        raise ValueError(text)
    return text


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > LARGEST:
        raise ValueError(text)
    return int(text)


def _stage(text: str) -> Stage:
    return STAGE_BY_LABEL[text]


def _steps(text: str) -> StepRange:
    first, _, last = text.partition("-")
    steps = StepRange(_number(first), _number(last) if last else LARGEST)
    if steps.first > steps.last:
        raise ValueError(text)
    return steps


def _span(text: str) -> SpanKey:
    match = re.fullmatch(r"([0-9]{1,10})-([0-9]{1,18})", text)
    if match is None or int(match[1]) > LARGEST:
        raise ValueError(text)
    return SpanKey(int(match[1]), int(match[2]))


def _times(first: str, last: str) -> tuple[int, int]:
    """Two times of a timeline, the first before the last."""
    if not all(re.fullmatch(r"[0-9]{1,15}", text) for text in (first, last)) or int(first) >= int(last):
        raise ValueError(first, last)
    return int(first), int(last)


def _zoom(text: str) -> TimeRange:
    first, _, last = text.partition("-")
    return TimeRange(*_times(first, last))


def _pins(text: str) -> tuple[int, ...]:
    pins = tuple(_number(one) for one in text.split("."))
    if len(pins) > MAX_PINS or len(set(pins)) < len(pins):
        raise ValueError(text)
    return pins


def _area(text: str) -> Area:
    first, last, top, bottom = text.split("-")
    return Area(*_times(first, last), _number(top), _number(bottom))


def _is_shown(text: str) -> bool:
    if text != SHOWN:
        raise ValueError(text)
    return True
