"""A run as it was at an earlier step."""

from dataclasses import replace

from diagnose.model.fleet import Fleet, HostSeries
from diagnose.model.operations import Operations
from diagnose.model.view import RunView, Series, Work


def until(view: RunView, num_steps: int) -> RunView:
    """The first ``num_steps`` steps of a view, and the samples of hosts up to the end of these steps."""
    last = int(view.steps[num_steps - 1])
    assert view.step_start_ns is not None
    ended_ns = int(view.step_start_ns[num_steps - 1] + view.step_ns[num_steps - 1])
    return replace(
        view,
        steps=view.steps[:num_steps],
        step_ns=view.step_ns[:num_steps],
        work={
            stage: Work(
                ns=work.ns[:num_steps],
                basis=work.basis,
                each_ns=None if work.each_ns is None else work.each_ns[:num_steps],
            )
            for stage, work in view.work.items()
        },
        off_cpu={stage: ns[:num_steps] for stage, ns in view.off_cpu.items()},
        overlap={stage: ns[:num_steps] for stage, ns in view.overlap.items()},
        operations={stage: _rows(one, num_steps) for stage, one in view.operations.items()},
        inner={stage: _rows(one, num_steps) for stage, one in view.inner.items()},
        exchanges=None if view.exchanges is None else _rows(view.exchanges, num_steps),
        samples={name: _series(one, last) for name, one in view.samples.items()},
        history=_series(view.history, last),
        step_start_ns=view.step_start_ns[:num_steps],
        fleet=_sampled_until(view.fleet, ended_ns),
    )


def _sampled_until(fleet: Fleet, ended_ns: int) -> Fleet:
    series = {metric: tuple(_until(one, ended_ns) for one in many) for metric, many in fleet.series.items()}
    events = tuple(event for event in fleet.events if event.at_ns <= ended_ns)
    return replace(fleet, series=series, events=events)


def _until(one: HostSeries, ended_ns: int) -> HostSeries:
    known = one.at_ns <= ended_ns
    return replace(one, at_ns=one.at_ns[known], value=one.value[known], mean=one.mean[known])


def _rows(one: Operations, num_steps: int) -> Operations:
    return one.chosen(steps=slice(num_steps))


def _series(series: Series, last: int) -> Series:
    kept = series.steps <= last
    return Series(steps=series.steps[kept], values=series.values[kept])
