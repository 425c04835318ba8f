"""Controls above a figure: what each sets in the address, and the address after somebody used one."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from telemetry.stages import STAGE_BY_LABEL
from ui.pages.interface import control_id
from ui.records import RunFacts
from ui.view_state import LARGEST, Clock, Group, Metric, SpanKey, StepRange, View, ViewState


def bar(*controls: Component, shown: Mapping[str, object]) -> Component:
    """Controls in a row. ``shown``: the value each was drawn with, so that only a change by hand counts as one."""
    store = dcc.Store(id={"shown": "controls"}, data=dict(shown))
    return dmc.Group([*controls, store], gap="md", align="flex-end", className="controls")


def labelled(label: str, control: Component) -> Component:
    """A control without a label of its own, under one."""
    return html.Div([html.Div(label, className="control-label"), control], role="group", **{"aria-label": label})


def link_button(text: str, state: ViewState, *, label: str = "") -> Component:
    """A link that looks like a button."""
    link = dcc.Link(text, href=state.search(), className="button", title=label or text)
    return link


def step_input(label: str, name: str, value: object, placeholder: str, facts: RunFacts) -> Component:
    """A number of a stored step; takes effect on Enter or on leaving."""
    stored = facts.steps.step
    return dmc.NumberInput(
        label=label,
        id=control_id(name),
        value=value,
        placeholder=placeholder,
        min=int(stored[0]) if len(stored) else 0,
        max=int(stored[-1]) if len(stored) else 0,
        clampBehavior="none",
        debounce=True,
        hideControls=True,
        allowDecimal=False,
        allowNegative=False,
        w=112,
    )


def changed_by_hand(values: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Controls whose value is not what they were drawn with."""
    return {name: value for name, value in values.items() if name in shown and value != shown[name]}


def after_controls(state: ViewState, changed: Mapping[str, Any]) -> ViewState:
    """The view after controls were set; a value that makes no sense changes nothing."""
    for name, value in changed.items():
        with suppress(ValueError, KeyError, TypeError):
            state = _SETTERS[name](state, value)
    return state


def after_click(state: ViewState, graph_name: str, point: Mapping[str, Any]) -> ViewState:
    """The view after a click: a cell leads to its step, a rank of a host to its timeline, a bar to its span."""
    with suppress(ValueError, KeyError, TypeError, IndexError):
        data = point["customdata"]
        if graph_name == "cells":
            return _timeline_of(state, int(data[1]), int(point["x"]))
        if graph_name == "hosts":
            return _timeline_of(state, int(data[0]), None)
        if graph_name == "timeline":
            return replace(state, span=SpanKey(int(data[0]), int(data[1])))
    return state


def _timeline_of(state: ViewState, rank: int, step: int | None) -> ViewState:
    return replace(state, view=View.TIMELINE, group=None, rank=rank, step=step, span=None)


def _first(state: ViewState, value: Any) -> ViewState:
    if value in ("", None):
        return replace(state, steps=None)
    first, last = int(value), state.steps.last if state.steps else LARGEST
    return replace(state, steps=StepRange(first, max(first, last)))


def _last(state: ViewState, value: Any) -> ViewState:
    if value in ("", None):
        return replace(state, steps=state.steps and StepRange(state.steps.first, LARGEST))
    last = int(value)
    return replace(state, steps=StepRange(min(state.steps.first if state.steps else 0, last), last))


def _step(state: ViewState, value: Any) -> ViewState:
    return replace(state, step=None if value in ("", None) else int(value), span=None)


def _rank(state: ViewState, value: Any) -> ViewState:
    return replace(state, rank=int(value), span=None)


_SETTERS: dict[str, Callable[[ViewState, Any], ViewState]] = {
    "stage": lambda state, value: replace(state, stage=STAGE_BY_LABEL[value]),
    "metric": lambda state, value: replace(state, metric=Metric(value)),
    "clock": lambda state, value: replace(state, clock=Clock(value)),
    "group": lambda state, value: replace(state, group=Group(value), span=None),
    "attempt": lambda state, value: ViewState(view=state.view, run=state.run, attempt=int(value)),
    "first": _first,
    "last": _last,
    "step": _step,
    "rank": _rank,
}
