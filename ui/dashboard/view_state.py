"""What a page shows: every choice of its user, and its address.

All pages share one selection: run, attempt, steps, step, rank, group, stage, pins, host. A page ignores the parts that
it does not use, and its links keep them:

    replace(state.at_rank(5), view=View.TIMELINE)      the timeline of rank 5, with all other choices of the user

The methods ``at_...`` change one part. They also remove the parts that have no meaning with it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlencode

from diagnose.model.collectives import GROUP_STAGES
from diagnose.model.exposed import AXIS_OF_STAGE
from telemetry.stages import Stage
from ui.dashboard.chart_view import PLAIN_CHARTS, ChartView
from ui.dashboard.log_view import ALL_FINDINGS, LogView
from ui.dashboard.timeline_view import ONE_STEP, TimelineView

MAX_NAME = 256
"""Characters of a host name or a search. Longer values are refused."""
LARGEST = 2**32 - 1
"""The largest rank, step or attempt that a store can hold."""
SHOWN = "shown"
"""The value of a field of the address that shows an optional part."""
MAX_PINS = 8
"""Largest number of ranks that a user can pin to the top of a timeline."""
BEFORE, AFTER = 20, 79
"""Steps that are shown before and after the onset of a problem."""


class View(StrEnum):
    """The pages, in the order of their tabs. A new page needs a member here, and a folder in ``pages/`` with its name.

    The value is the name of the page in addresses.
    """

    RUNS = "runs"
    OVERVIEW = "overview"
    HEAT_MAP = "heatmap"
    TIMELINE = "timeline"
    GRID = "grid"
    WHATIF = "whatif"
    COMPARE = "compare"
    GOODPUT = "goodput"
    HANG = "hang"
    FLEET = "fleet"
    CLOCK = "clock"
    ALERTS = "alerts"
    FINDINGS_LOG = "findings-log"
    ABLATION = "ablation"
    SQL = "sql"


class RunOrder(StrEnum):
    """The order of the list of runs."""

    TROUBLE = "trouble"
    NAME = "name"
    STEP_TIME = "step-time"
    MFU = "mfu"
    GOODPUT = "goodput"
    RANKS = "ranks"
    STARTED = "started"


class Metric(StrEnum):
    """The meaning of colours that show the time in a stage."""

    RATIO = "ratio"
    MILLISECONDS = "ms"
    SHARE = "share"
    WAIT = "wait"
    """The time that others waited for a rank, as a share of the step."""
    EXPOSED = "exposed"
    """Communication along the axis of a stage that no compute covers, as a share of the step."""


class RowOrder(StrEnum):
    """The order of the rows of the heat map."""

    RANK = "rank"
    VALUE = "value"
    """The highest value first."""


class Colour(StrEnum):
    """The meaning of the colours of the grid."""

    STATE = "state"
    BLAME = "blame"
    METRIC = "metric"


class Form(StrEnum):
    """How the grid is drawn: as slices side by side, or as a body that can be rotated."""

    SLICES = "slices"
    BODY = "3d"


class Clock(StrEnum):
    """Which time of a stage is shown: compute time, or wall time."""

    OWN = "own"
    WALL = "wall"


class Group(StrEnum):
    """Which ranks the timeline shows: the group of a rank along a direction of the grid, or along the axis cp or ep of
    the mesh, or all."""

    PP = "pp"
    DP = "dp"
    CP = "cp"
    EP = "ep"
    TP = "tp"
    ALL = "all"


class Family(StrEnum):
    """Which samples of a host the fleet page shows."""

    NETWORK = "network"
    GPU = "gpu"
    HOST = "host"


class SpanKey(NamedTuple):
    """Identifies a span within an attempt."""

    rank: int
    seq: int


class StepRange(NamedTuple):
    """Steps from ``first`` to ``last``, both included. With ``last`` = LARGEST, the range follows a live run."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-" if self.last == LARGEST else f"{self.first}-{self.last}"

    @classmethod
    def around(cls, onset: int) -> "StepRange":
        """The steps around the onset of a problem."""
        return cls(max(0, onset - BEFORE), min(onset + AFTER, LARGEST))


class TimeRange(NamedTuple):
    """A time range of the timeline, in nanoseconds from its earliest span."""

    first_ns: int
    last_ns: int

    def __str__(self) -> str:
        return f"{self.first_ns}-{self.last_ns}"


class Area(NamedTuple):
    """A rectangle of the timeline: times as in ``TimeRange``, and the ranks of its top and bottom row."""

    first_ns: int
    last_ns: int
    top: int
    bottom: int

    def __str__(self) -> str:
        return "-".join(map(str, self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Everything that determines a page. A field that is None is not given, so a default applies
    (``ui/dashboard/defaults.py``)."""

    view: View = View.RUNS
    run: str = ""
    attempt: int | None = None
    stage: Stage = Stage.FORWARD_COMPUTE
    metric: Metric = Metric.RATIO
    clock: Clock = Clock.OWN
    only: str = ""
    """The ranks of the heat map (``ui/dashboard/figures/rank_rows.py``)."""
    sort: RowOrder = RowOrder.RANK
    top: int | None = None
    """The heat map shows only this number of ranks with the highest values, and all suspects."""
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
    tag: str = ""
    a: str = ""
    """The reference of a comparison, as the command names it: ``gpt/0/steps=100-199``."""
    b: str = ""
    """The side that is compared with ``a``."""
    log: LogView = ALL_FINDINGS
    timeline: TimelineView = ONE_STEP
    charts: ChartView = PLAIN_CHARTS

    def clear(self) -> "ViewState":
        """The view without the parts that have a meaning only in one attempt of one run."""
        return replace(
            self,
            steps=None,
            step=None,
            rank=None,
            span=None,
            zoom=None,
            pins=(),
            area=None,
            host="",
            only="",
            a="",
            b="",
            timeline=replace(self.timeline, a_step=None),
        )

    def at_run(self, run: str, attempt: int | None = None) -> "ViewState":
        """The view of a run. If it is another run or attempt, steps, ranks, hosts and sides are cleared. If ``attempt``
        is None, the attempt of the view, or the newest one of another run."""
        if run == self.run and attempt in (None, self.attempt):
            return self
        return replace(self.clear(), run=run, attempt=attempt)

    def at_steps(self, steps: StepRange | None) -> "ViewState":
        """The view with a window of steps. A step outside it is no longer chosen."""
        is_inside = steps is None or self.step is None or steps.first <= self.step <= steps.last
        return replace(self if is_inside else self.at_step(None), steps=steps)

    def at_step(self, step: int | None) -> "ViewState":
        """The view with a step. Zoom and pins stay, so that the same time range of another step can be compared."""
        return self if step == self.step else replace(self, step=step, span=None, area=None)

    def at_rank(self, rank: int | None) -> "ViewState":
        """The view with a rank. Span, zoom and area of a timeline are cleared, because they do not apply to other
        rows."""
        return self if rank == self.rank else replace(self, rank=rank, span=None, zoom=None, area=None)

    def at_group(self, group: Group) -> "ViewState":
        """The view with a group of ranks. Span, zoom and area are cleared as in :meth:`at_rank`."""
        return self if group == self.group else replace(self, group=group, span=None, zoom=None, area=None)

    def at_stage(self, stage: Stage) -> "ViewState":
        """The view with a stage. Ratios replace waiting times if the stage is not a collective, and exposed time if it
        is not communication."""
        lacks_wait = self.metric is Metric.WAIT and stage not in GROUP_STAGES
        lacks_exposed = self.metric is Metric.EXPOSED and stage not in AXIS_OF_STAGE
        return replace(self, stage=stage, metric=Metric.RATIO if lacks_wait or lacks_exposed else self.metric)

    def search(self) -> str:
        """The address of this view, from its ``?`` on; the inverse of :func:`ui.dashboard.address.parse_search`."""
        values = {
            "view": self.view.value,
            "run": self.run or None,
            "attempt": self.attempt,
            "stage": None if self.stage is Stage.FORWARD_COMPUTE else self.stage.label,
            "metric": None if self.metric is Metric.RATIO else self.metric.value,
            "time": None if self.clock is Clock.OWN else self.clock.value,
            "only": self.only or None,
            "sort": None if self.sort is RowOrder.RANK else self.sort.value,
            "top": self.top,
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
            "tag": self.tag or None,
            "a": self.a or None,
            "b": self.b or None,
            **self.log.fields(),
            **self.timeline.fields(),
            **self.charts.fields(),
        }
        return "?" + urlencode({name: value for name, value in values.items() if value is not None})
