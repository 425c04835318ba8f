"""The parameters of the operations, and their limits. The text below a field is its documentation."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from telemetry.stages import STAGE_BY_LABEL
from ui.dashboard.view_state import LARGEST, MAX_NAME, Clock, Metric

MOST_RUNS, MOST_FINDINGS, MOST_STEPS, MOST_INCIDENTS, MOST_RANKS = 1_000, 1_000, 10_000, 1_000, 2_000
MOST_CELLS, MOST_SPANS = 80_000, 10_000
MAX_RANKS_TEXT = 4_096


def _known_stage(label: str) -> str:
    if label not in STAGE_BY_LABEL:
        raise ValueError(f"must be a stage: {', '.join(STAGE_BY_LABEL)}")
    return label


Name = Annotated[str, Field(max_length=MAX_NAME)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
RankList = Annotated[str, Field(max_length=MAX_RANKS_TEXT, examples=["0-7,12"])]
StageName = Annotated[str, AfterValidator(_known_stage), Field(json_schema_extra={"enum": [*STAGE_BY_LABEL]})]


class Parameters(BaseModel):
    """Every parameter is optional unless it is marked as required. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RunsParameters(Parameters):
    """Parameters of the list of runs."""

    limit: Annotated[int, Field(ge=1, le=MOST_RUNS)] = 50
    """Number of runs: the newest ones."""
    tag: Name = ""
    """Only runs with this tag."""


class RunParameters(Parameters):
    """Selects an attempt of a run."""

    run: Name = ""
    """Name of the run. Default: the newest run."""
    attempt: Number | None = None
    """Attempt, from 0. Default: the newest attempt."""


class WindowParameters(RunParameters):
    """Selects an attempt of a run, and some of its steps."""

    first_step: Number | None = None
    """First step to read."""
    last_step: Number | None = None
    """Last step to read, included."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.first_step is not None and self.last_step is not None and self.first_step > self.last_step:
            raise ValueError(f"first_step {self.first_step} is larger than last_step {self.last_step}")
        return self


class StepsParameters(WindowParameters):
    """Parameters of the step times. Default: the newest steps."""

    limit: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 200
    """Number of steps: the newest ones of the window."""


class FindingsParameters(WindowParameters):
    """Parameters of the findings. Default: findings about the newest 200 steps."""

    limit: Annotated[int, Field(ge=1, le=MOST_FINDINGS)] = 50
    """Number of findings: the worst ones. Marks and losses have the same limit."""


class HeatMapParameters(WindowParameters):
    """Parameters of the heat map. Default: the newest 100 steps of all ranks, or fewer steps if they do not fit."""

    stage: StageName = "forward-compute"
    """The stage whose time is shown."""
    metric: Metric = Metric.RATIO
    """`ratio`: time divided by the median of the ranks that do the same work. `ms`: milliseconds. `share`: percent of
    the step. `wait`: percent of the step that the other ranks of the collective wait for this rank. `exposed`: percent
    of the step in which the rank communicates along the axis of the stage and does not compute."""
    time: Clock = Clock.OWN
    """`own`: compute time without waiting for other ranks, where it is known. `wall`: time including waiting."""
    ranks: RankList = ""
    """Ranks, such as `0-7,12`. Default: all ranks."""
    max_cells: Annotated[int, Field(ge=1, le=MOST_CELLS)] = 4_000
    """A larger heat map is refused."""


class TimelineParameters(RunParameters):
    """Parameters of the timeline of one step."""

    step: Number | None = None
    """Step to show. Default: a typical step. In a live run: the newest complete step."""
    ranks: RankList = ""
    """At most 64 ranks, such as `0-7,12`. Default: the first 64 ranks."""
    limit: Annotated[int, Field(ge=1, le=MOST_SPANS)] = 200
    """Number of spans: the longest ones."""


class GoodputParameters(Parameters):
    """Parameters of the goodput of a run, over all of its attempts."""

    run: Name = ""
    """Name of the run. Default: the newest run."""
    limit: Annotated[int, Field(ge=1, le=MOST_INCIDENTS)] = 50
    """Number of incidents: the newest ones."""


class CompareParameters(Parameters):
    """Parameters of a comparison of two runs, attempts, step ranges or sets of ranks."""

    a: Annotated[str, Field(min_length=1, max_length=2 * MAX_NAME, examples=["gpt/0", "gpt/0/steps=100-199"])]
    """The reference: RUN, RUN/ATTEMPT, RUN/ATTEMPT/steps=100-199 or RUN/ranks=0-7."""
    b: Annotated[str, Field(min_length=1, max_length=2 * MAX_NAME, examples=["gpt/1"])]
    """What is compared with it, in the same form."""
    least_change: Annotated[float, Field(ge=0.0, le=100.0, allow_inf_nan=False)] = 1.0
    """Percent. Smaller changes are ignored, even if they are significant."""
    limit: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 50
    """Number of ranks that differ: those with the largest change."""
