"""The offset of a host's clock from the reference, with the bound of each window, over the run.

offset      |     |          |: the true offset is within the bar, in the whole window
          --o--.  |  .--o--
            |   '-o-'   |    refused windows are shaded: the offset is not known
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from diagnose.model.host_clocks import WindowClocks
from telemetry.clocks.align_evidence import DISPUTED, HostClock
from ui.dashboard.figures.style import BLUE, GREY, framed, titled
from ui.dashboard.records import StepTimes
from ui.dashboard.wording import local_ms, time_zone

HEIGHT_PX, BELOW_PX = 300, 54
OFFSETS_PX = 72
"""Left margin, for offsets and the title of their axis."""
DISPUTED_COLOUR = "#d9480f"


def clock_offset(windows: Sequence[WindowClocks], steps: StepTimes, *, keep: str) -> go.Figure | None:
    """The figure of one host. ``windows``: those of the host, in order of steps. None if none of them is aligned."""
    measured = [(window, clock) for window in windows for clock in window.clocks]
    if not any(clock.aligned for _, clock in measured):
        return None
    line = go.Scatter(
        x=[local_ms(_middle_ns(window, clock, steps)) for window, clock in measured],
        y=[clock.offset_ns / 1e6 if clock.aligned else None for _, clock in measured],
        error_y={
            "type": "data",
            "array": [max(0, clock.bound_ns) / 1e6 for _, clock in measured],
            "color": BLUE,
            "thickness": 1.2,
            "width": 3,
        },
        mode="lines+markers",
        line={"color": BLUE, "width": 1.2},
        marker={"color": [DISPUTED_COLOUR if clock.method == DISPUTED else BLUE for _, clock in measured], "size": 6},
        customdata=[[clock.bound_ns / 1e6, clock.drift_ppm, clock.method] for _, clock in measured],
        hovertemplate="%{x|%H:%M:%S}<br><b>%{y:+,.3f} ms</b> ±%{customdata[0]:,.3f} ms"
        "<br>drift %{customdata[1]:+.2f} ppm, by %{customdata[2]}<extra></extra>",
    )
    of_time: dict[str, object] = {"type": "date", "tickformat": "%H:%M:%S", "nticks": 8}
    if len(measured) == 1:  # a single point has no extent, so all ticks would have the same label
        first, last = _extent(measured[0][0], steps)
        margin_ms = (last - first) / 20
        of_time["range"] = [first - margin_ms, last + margin_ms]
    return framed(
        [line],
        height_px=HEIGHT_PX,
        keep=keep,
        hovermode="closest",
        showlegend=False,
        margin={"l": OFFSETS_PX, "r": 24, "t": 12, "b": BELOW_PX},
        xaxis=of_time | {"title": titled(f"wall clock, {time_zone(int(steps.start_ns[-1]))}")},
        yaxis={"title": titled("offset, ms"), "showgrid": True, "nticks": 6},
        shapes=[_refused(window, steps) for window, clock in measured if not clock.aligned],
    )


def _middle_ns(window: WindowClocks, clock: HostClock, steps: StepTimes) -> int:
    """The middle of a window. A window of the reference has no times, so it is the begin of its first step."""
    return (clock.first_ns + clock.last_ns) // 2 or _started_ns(window.first_step, steps)


def _started_ns(step: int, steps: StepTimes) -> int:
    return int(steps.start_ns[min(int(np.searchsorted(steps.step, step)), len(steps.step) - 1)])


def _extent(window: WindowClocks, steps: StepTimes) -> list[float]:
    return [local_ms(_started_ns(step, steps)) for step in (window.first_step, window.last_step + 1)]


def _refused(window: WindowClocks, steps: StepTimes) -> dict[str, object]:
    style = {"type": "rect", "fillcolor": GREY, "opacity": 0.2, "line": {"width": 0}, "layer": "below"}
    return style | dict(zip(("x0", "x1"), _extent(window, steps), strict=True)) | {"yref": "paper", "y0": 0, "y1": 1}
