"""The results about runs, steps, heat maps and timelines. The text below a field is its documentation.

Operations return plain values. These models document them, and tests compare the two. ``report_results.py`` has the
results that are also reports of commands. Fields may be added. No field is removed or renamed within schema 1. Times
ending in ``_ns`` are nanoseconds, since 1970 unless noted.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from diagnose.model.run_state import RunState
from ui.dashboard.view_state import Metric


class Result(BaseModel):
    """An object with these fields."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class SchemaOne(Result):
    """A result with the version of its fields."""

    # It is not called `schema` here, because that is a method of pydantic's models.
    version: Annotated[Literal[1], Field(alias="schema")]
    """The version of these fields."""


class StoredRun(Result):
    """One attempt of a run."""

    run_id: str
    attempt: int
    started_ns: int
    last_ns: int
    """The newest data of its ranks."""
    num_ranks: int
    first_step: int
    last_step: int
    meta: str
    """What the job reported at its start: a JSON object as text."""
    state: RunState
    heard_ns: int
    """The newest data or heartbeat."""
    tags: list[str]
    """Of the run, in alphabetical order."""


class RunsResult(SchemaOne):
    """As `rankscope runs --json`."""

    num_runs: int
    """Number of stored runs, or of those with the tag."""
    runs: list[StoredRun]
    """Every attempt of the listed runs, newest first."""


class Host(Result):
    """A machine and its ranks."""

    host: str
    """Empty: not known."""
    ranks: str
    """Such as `0-7`."""


class RecentMean(Result):
    """A mean over the newest window of up to 50 steps."""

    mean: float
    first_step: int
    last_step: int


class Note(Result):
    """What a person wrote about a run."""

    at_ns: int
    who: str
    """The name that the person gave."""
    text: str


class RunResult(SchemaOne):
    """One attempt of a run."""

    run: str
    attempt: int
    attempts: list[int]
    """All stored attempts of the run, newest first."""
    state: RunState
    started_ns: int
    heard_ns: int
    """The newest data or heartbeat."""
    num_ranks: int
    mesh: dict[str, int]
    """Axis -> degree, in the rank order of the job."""
    roles: dict[str, str]
    """Role -> its ranks, such as `0-7`. Empty: the job has one program."""
    hosts: list[Host]
    first_step: int
    last_step: int
    num_steps: int
    """Number of stored steps."""
    step_time_s: RecentMean | None
    """None: no completed step."""
    mfu: RecentMean | None
    """None: not reported."""
    tokens_per_second: RecentMean | None
    """None: not reported."""
    loss: float | None
    """The newest loss. None: not reported."""
    stages: list[str]
    """Stages that were recorded."""
    num_spans: int
    meta: dict[str, str]
    """What the job reported at its start."""
    tags: list[str]
    """Of the run, in alphabetical order."""
    notes: list[Note]
    """The newest 100 notes about the run, the newest first."""


class Step(Result):
    """One step."""

    step: int
    start_ns: int
    """Start of its first rank."""
    seconds: float
    """The step time: mean over its ranks."""
    num_ranks: int
    """Ranks that completed it."""


class StepsResult(SchemaOne):
    """Step times of an attempt."""

    run: str
    attempt: int
    num_steps: int
    """Number of stored steps in the window. `steps` has the newest of them."""
    step_time_s: float | None
    """The step time over the window. None: no completed step."""
    steps: list[Step]
    """Ascending."""


class HeatMapResult(SchemaOne):
    """Time in a stage by step and rank."""

    run: str
    attempt: int
    stage: str
    metric: Metric
    unit: str
    """Of the values: `x peers`, `ms` or `% of step`."""
    time: str
    """The kind of time, in words. Wall time includes waiting: then a rank that waits looks slow too."""
    steps: list[int]
    """The first step of each column."""
    steps_per_column: int
    """A column of several steps has their mean or median."""
    ranks: list[int]
    """The first rank of each row."""
    ranks_per_row: int
    """A row of several ranks has the value of the worst of them."""
    values: list[list[float | None]]
    """By column, then by row. None: not known."""
    worst_ranks: list[list[int]] | None
    """The rank of each value. None: each row is one rank."""
    step_time_s: list[float | None]
    """The step time of each column."""


class TimelineRank(Result):
    """A rank and its step."""

    rank: int
    host: str
    place: str
    """Its coordinates, such as `dp1 pp0 tp1`."""
    step_start_ns: int | None
    """After `origin_ns`. None: the rank has not completed the step."""
    step_ns: int | None


class SpanResult(Result):
    """One stage on one rank."""

    rank: int
    stage: str
    stream: str
    """The queue of work, such as `compute`. Empty: not known to this version."""
    start_ns: int
    """After `origin_ns`."""
    duration_ns: int
    waited_ns: int
    """The first part of the duration, in which the rank waited for the last partner. 0: none, or not certain."""
    operation: int | None
    """Spans of one collective or transfer have the same number. None: no partner in this answer."""
    microbatch: int | None
    peer: int | None
    """The other rank of a transfer. None: no transfer, or not known."""
    size_bytes: int


class TimelineResult(SchemaOne):
    """Spans of one step on one clock."""

    run: str
    attempt: int
    step: int
    origin_ns: int
    """Start of the earliest span."""
    clock_bound_ns: int
    """Times of two hosts differ by at most this error. Ignore smaller differences."""
    unaligned_hosts: list[str]
    """Hosts whose clocks are not aligned. Compare their times with their own only."""
    ranks: list[TimelineRank]
    num_spans: int
    """Number of stored spans of these ranks in the step. `spans` has the longest of them."""
    spans: list[SpanResult]
    """By rank, then by start."""


class Refused(Result):
    """An error."""

    error: str
    hint: str
    """What to do next."""
