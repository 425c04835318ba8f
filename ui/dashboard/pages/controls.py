"""Controls above a figure: the field of the address that each sets, and the address after a change."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from telemetry.stages import STAGE_BY_CODE, STAGE_BY_LABEL
from ui.dashboard.address_fields import tag_name
from ui.dashboard.chart_view import CHART_FIELDS, with_chart_field
from ui.dashboard.data.compare import joined_side, side_parts
from ui.dashboard.log_view import LOG_FIELDS, with_log_field
from ui.dashboard.pages.interface import control_id
from ui.dashboard.timeline_view import Counters, RankOrder, with_num_steps
from ui.dashboard.view_state import (
    LARGEST,
    MAX_NAME,
    SHOWN,
    Clock,
    Colour,
    Family,
    Form,
    Group,
    Metric,
    RowOrder,
    StepRange,
    View,
    ViewState,
)


def bar(*controls: Component) -> Component:
    return dmc.Group(list(controls), gap="md", align="flex-end")


def switch(
    label: str, name: str, value: object, choices: Mapping[str, str], *, disabled: Collection[str] = ()
) -> Component:
    """A choice among a few visible values. ``choices``: value -> label. ``disabled``: values that cannot be chosen."""
    data = [{"value": value, "label": text, "disabled": value in disabled} for value, text in choices.items()]
    control = dmc.SegmentedControl(id=control_id(name), value=value, data=data)
    return html.Div([html.Div(label, className="control-label"), control], role="group", **{"aria-label": label})


def link_button(text: str, state: ViewState, *, name: str = "", title: str = "") -> Component:
    """A link that looks like a button. ``name``: a class by which keyboard shortcuts find it."""
    return dcc.Link(text, href=state.search(), className=f"button {name}".strip(), title=title or text)


def titled(title: str, exactly: ViewState) -> Component:
    """The heading of a figure, and a button that copies a link to this view. ``exactly``: the view with all defaults
    filled in."""
    copy = html.Button("Copy link", className="button small", type="button", **{"data-search": exactly.search()})
    return html.Div([html.H2(title, className="panel-title"), copy], className="titled")


def number_input(label: str, name: str, value: object, placeholder: str) -> Component:
    """A number field. It takes effect on Enter or when the field loses the focus."""
    return dmc.NumberInput(
        label=label,
        id=control_id(name),
        value=value,
        placeholder=placeholder,
        debounce=True,
        hideControls=True,
        allowDecimal=False,
        allowNegative=False,
        w=112,
    )


def window_values(state: ViewState) -> dict[str, object]:
    """The values of the controls of :func:`window_inputs`."""
    return {
        "first": state.steps.first if state.steps else "",
        "last": state.steps.last if state.steps and state.steps.last != LARGEST else "",
    }


def window_inputs(shown: Mapping[str, object], newest: int) -> tuple[Component, Component]:
    """The controls for the first and the last step of a window. If both are empty, the ``newest`` steps are shown."""
    return (
        number_input("From step", "first", shown["first"], f"newest {newest}"),
        number_input("To step", "last", shown["last"], "newest"),
    )


def window_links(state: ViewState, newest: int) -> tuple[Component, Component]:
    """Links to common windows of steps."""
    return (
        link_button(f"Newest {newest}", state.at_steps(None)),
        link_button("All steps", state.at_steps(StepRange(0, LARGEST))),
    )


def text_input(label: str, name: str, placeholder: str, *, value: object = "", debounce: int | bool = 300) -> Component:
    """A text field. It takes effect shortly after the last key; with ``debounce=True`` on Enter, or when it loses the
    focus."""
    return dmc.TextInput(
        label=label, id=control_id(name), value=value, placeholder=placeholder, debounce=debounce, w=280
    )


def after_controls(state: ViewState, changed: Mapping[str, Any]) -> ViewState:
    """The view after controls were changed. An invalid value changes nothing."""
    for name, value in changed.items():
        with suppress(ValueError, KeyError, TypeError):
            state = _SETTERS[name](state, value)
    return state


def after_click(state: ViewState, chart: str, point: Mapping[str, Any]) -> ViewState:
    """The view after a click on a figure. A cell leads to its step, a rank of a host to its timeline. A rank of the
    grid is chosen. A part of a slowdown leads to the page that shows it."""
    with suppress(ValueError, KeyError, TypeError, IndexError):
        first, second = _first_two(point["customdata"])
        if chart == "cells":
            return timeline_of(state, second, int(point["x"]))
        if chart == "hosts":
            return timeline_of(state, first, None)
        if chart == "grid" and first >= 0:
            return state.at_rank(first)
        if chart == "by-stage":
            return replace(state.at_stage(STAGE_BY_CODE[first]), view=View.HEAT_MAP)
        if chart == "by-pp":
            return stage_timeline(state, first, second)
        if chart in ("by-dp", "workers"):
            return timeline_of(state, first, second)
    return state


def after_brush(state: ViewState, first: object, last: object) -> ViewState:
    """The view after a drag along an axis of steps, from ``first`` to ``last``. The ends can lie between steps."""
    with suppress(ValueError, TypeError, OverflowError):
        ends = [min(max(0, round(float(end))), LARGEST - 1) for end in (first, last)]  # type: ignore[arg-type]
        return state.at_steps(StepRange(min(ends), max(ends)))
    return state


def stage_timeline(state: ViewState, rank: int, step: int) -> ViewState:
    """The timeline of a pipeline rank with all its replicas."""
    return timeline_of(state.at_group(Group.DP), rank, step)


def _first_two(customdata: Any) -> tuple[int, int]:
    """The first two values of custom data: a list, or an object by position if the browser holds a typed array."""
    values = list(customdata.values()) if isinstance(customdata, Mapping) else list(customdata)
    return int(values[0]), int(values[1])


def timeline_of(state: ViewState, rank: int, step: int | None) -> ViewState:
    """The timeline of a rank in ``step``, or in the chosen step if ``step`` is None."""
    chosen = state.at_rank(rank)
    return replace(chosen if step is None else chosen.at_step(step), view=View.TIMELINE)


def _first(state: ViewState, value: Any) -> ViewState:
    if value in ("", None):
        return state.at_steps(None)
    first, last = int(value), state.steps.last if state.steps else LARGEST
    return state.at_steps(StepRange(first, max(first, last)))


def _last(state: ViewState, value: Any) -> ViewState:
    if value in ("", None):
        return state.at_steps(state.steps and StepRange(state.steps.first, LARGEST))
    last = int(value)
    return state.at_steps(StepRange(min(state.steps.first if state.steps else 0, last), last))


def _number(value: Any) -> int | None:
    return None if value in ("", None) else int(value)


def _find(state: ViewState, value: Any) -> ViewState:
    found = "".join(letter for letter in str(value or "") if letter.isprintable())
    return replace(state, find=found[:MAX_NAME].strip())


def _only(state: ViewState, value: Any) -> ViewState:
    words = " ".join(str(value or "").split())
    return replace(state, only="".join(letter for letter in words if letter.isprintable())[:MAX_NAME].strip())


def _side(run: Any, part: Any) -> str:
    joined = joined_side(str(run or ""), str(part or "").strip(" /"))
    return "".join(letter for letter in joined if letter.isprintable())[:MAX_NAME]


def _num_steps(state: ViewState, value: Any) -> ViewState:
    """Set the number of steps. The new picture has other times, so zoom and area are removed."""
    return replace(state, timeline=with_num_steps(state.timeline, value), zoom=None, area=None)


def _log_field(name: str, state: ViewState, value: Any) -> ViewState:
    return replace(state, log=with_log_field(state.log, name, str(value or "")))


def _chart_field(name: str, state: ViewState, value: Any) -> ViewState:
    return replace(state, charts=with_chart_field(state.charts, name, value))


_SETTERS: dict[str, Callable[[ViewState, Any], ViewState]] = {
    "stage": lambda state, value: state.at_stage(STAGE_BY_LABEL[value]),
    "metric": lambda state, value: replace(state, metric=Metric(value)),
    "clock": lambda state, value: replace(state, clock=Clock(value)),
    "only": _only,
    "sort": lambda state, value: replace(state, sort=RowOrder(value)),
    "top": lambda state, value: replace(state, top=None if value in ("", None, 0) else min(int(value), LARGEST)),
    "colour": lambda state, value: replace(state, colour=Colour(value)),
    "form": lambda state, value: replace(state, form=Form(value)),
    "group": lambda state, value: state.at_group(Group(value)),
    "first": _first,
    "last": _last,
    "step": lambda state, value: state.at_step(_number(value)),
    "a-step": lambda state, value: replace(state, timeline=replace(state.timeline, a_step=_number(value))),
    "host": lambda state, value: replace(state, host=str(value or "")),
    "family": lambda state, value: replace(state, family=Family(value)),
    "rank": lambda state, value: state.at_rank(_number(value)),
    "ideal": lambda state, value: replace(state, ideal=value == SHOWN),
    "num-steps": _num_steps,
    "rank-order": lambda state, value: replace(state, timeline=replace(state.timeline, order=RankOrder(value))),
    "counters": lambda state, value: replace(state, timeline=replace(state.timeline, counters=Counters(value))),
    "find": _find,
    "tag": lambda state, value: replace(state, tag=tag_name(str(value)) if value else ""),
    "a": lambda state, value: replace(state, a=_side(value, side_parts(state.a)[1])),
    "b": lambda state, value: replace(state, b=_side(value, side_parts(state.b)[1])),
    "a-part": lambda state, value: replace(state, a=_side(side_parts(state.a)[0], value)),
    "b-part": lambda state, value: replace(state, b=_side(side_parts(state.b)[0], value)),
    "log-find": lambda state, value: replace(_find(state, value), log=replace(state.log, page=1)),
    "log-host": lambda state, value: replace(state, host=str(value or "")[:MAX_NAME], log=replace(state.log, page=1)),
    **{f"log-{name}": partial(_log_field, name) for name in LOG_FIELDS},
    **{f"charts-{name}": partial(_chart_field, name) for name in CHART_FIELDS},
}
