"""What a page shows: every choice of its user, and its address."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlencode

from telemetry.stages import Stage

MAX_NAME = 256
"""Characters of a host name or a search. Longer values are refused."""
LARGEST = 2**32 - 1
"""The largest rank, step or attempt that a store can hold."""
SHOWN = "shown"
"""The value of a field of the address that shows an optional part."""
MAX_PINS = 8
"""Ranks that a user can pin to the top of a timeline."""


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
    ABLATION = "ablation"


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
    """Everything that determines a page. None: not given, so a default applies (``ui/dashboard/defaults.py``)."""

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
    a: str = ""
    """The reference of a comparison, as the command names it: ``gpt/0/steps=100-199``."""
    b: str = ""
    """What is compared with it."""

    def search(self) -> str:
        """The address of this view, from its ``?`` on; the inverse of :func:`ui.dashboard.address.parse_search`."""
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
            "a": self.a or None,
            "b": self.b or None,
        }
        return "?" + urlencode({name: value for name, value in values.items() if value is not None})
