"""Read the address of a page: every link restores the view that it was copied from.

    ?view=heatmap&run=demo&attempt=0&stage=forward-compute&metric=ratio&time=own&steps=100-199
    ?view=heatmap&run=demo&attempt=0&steps=100-                     step 100 and all that follow
    ?view=heatmap&run=demo&attempt=0&only=dp1 gpu-00&sort=value&top=32      32 of the ranks with dp1 on some hosts
    ?view=overview&run=demo&axis=time&range=1000&smooth=51&scale=log&metrics=a,b,
    ?view=timeline&run=demo&attempt=0&group=pp&rank=5&step=150&span=5-1042
    ?view=timeline&run=demo&step=150&zoom=1200000-9800000&pins=5.4&area=1300000-2000000-5-6
    ?view=timeline&run=demo&step=150&ideal=shown                    with the ideal timeline below the real one
    ?view=timeline&run=demo&step=150&num-steps=4                    four neighbouring steps
    ?view=hang&run=demo&attempt=0&rank=5
    ?view=grid&run=demo&attempt=0&rank=5&colour=blame&form=3d
    ?view=whatif&run=demo&attempt=0&steps=100-199
    ?view=compare&run=demo&a=demo/0/steps=0-99&b=demo/0/steps=100-199
    ?view=fleet&run=demo&attempt=0&host=gpu-003&family=gpu&steps=100-199
    ?view=clock&run=demo&attempt=0&host=gpu-003
    ?view=runs&find=gpt&tag=baseline&order=mfu
    ?view=alerts&run=demo                                           of one run; without it of all
    ?view=findings-log&find=gpt&kind=nic-flap&severity=critical&host=gpu-003&state=firing&since=7d&page=2

A field that is missing takes its default and follows a live run. A field that is not valid takes its default too, and
adds a note for the reader. Text of an address is only ever displayed as text.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from telemetry.stages import STAGE_BY_LABEL, Stage
from ui.dashboard.address_fields import Value, tag_name, whole_number
from ui.dashboard.chart_view import read_chart_view
from ui.dashboard.log_view import read_log_view
from ui.dashboard.timeline_view import read_timeline_view
from ui.dashboard.view_state import (
    LARGEST,
    MAX_NAME,
    MAX_PINS,
    SHOWN,
    Area,
    Clock,
    Colour,
    Family,
    Form,
    Group,
    Metric,
    RowOrder,
    RunOrder,
    SpanKey,
    StepRange,
    TimeRange,
    View,
    ViewState,
)

MAX_SEARCH = 16_000
"""Characters of an address that are read. A view can have five long names."""


class Parsed(NamedTuple):
    """A view, and notes on invalid fields of its address."""

    state: ViewState
    notes: tuple[str, ...]


def parse_search(search: str | None) -> Parsed:
    """The view of an address. Never raises: an invalid field takes its default and adds a note."""
    given = dict(parse_qsl((search or "").lstrip("?")[:MAX_SEARCH], max_num_fields=None, errors="replace"))
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
        only=read("only", _name, ""),
        sort=read("sort", RowOrder, RowOrder.RANK),
        top=read("top", _count, None),
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
        tag=read("tag", tag_name, ""),
        a=read("a", _name, ""),
        b=read("b", _name, ""),
        log=read_log_view(read),
        timeline=read_timeline_view(read),
        charts=read_chart_view(read),
    )
    return Parsed(state, tuple(notes))


class _Fields:
    """Reads the fields of an address. Notes the invalid ones."""

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
    return whole_number(text, 0, LARGEST)


def _count(text: str) -> int:
    return whole_number(text, 1, LARGEST)


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
    if not all(re.fullmatch(r"[0-9]{1,15}", text) for text in (first, last)) or int(first) >= int(last):
        raise ValueError(first, last)
    return int(first), int(last)


def _zoom(text: str) -> TimeRange:
    first, _, last = text.partition("-")
    return TimeRange(*_times(first, last))


def _pins(text: str) -> tuple[int, ...]:
    pins = tuple(_number(rank) for rank in text.split("."))
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
