"""A run as experiment trackers show it: values by step, and findings as events.

samples of the training loop     loss, mfu, tokens-per-second ...           under their own names
step time                        rankscope/step-seconds                     as in docs/guides/step-time.md
time by stage                    rankscope/stage-seconds/forward-compute    diagnose/model/stage_seconds.py
"""

from collections.abc import Iterator
from typing import Any

from diagnose.findings import Finding
from diagnose.model.load import meta_of_ranks
from diagnose.model.stage_seconds import stage_seconds_by_step
from telemetry.exports.trackers.interface import Event, StepValues, TrackedRun
from telemetry.records import topology_of
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks, Samples, StageSteps, Steps

STEPS_AT_ONCE = 500
STEP_SECONDS = "rankscope/step-seconds"
STAGE_SECONDS = "rankscope/stage-seconds/"
SHOWN = ("recipe", "model", "device")
"""Metadata of the first rank that becomes settings."""
_NS = 1e-9


def step_values(
    reader: Reader, run_id: str, attempt: int, *, first_step: int, last_step: int
) -> Iterator[list[StepValues]]:
    """The values of completed steps, some steps at a time, ascending. A step without any value is left out."""
    for first in range(first_step, last_step + 1, STEPS_AT_ONCE):
        last = min(last_step, first + STEPS_AT_ONCE - 1)
        if found := _values(reader, run_id, attempt, first, last):
            yield found


def _values(reader: Reader, run_id: str, attempt: int, first: int, last: int) -> list[StepValues]:
    window: dict[str, Any] = {"first_step": first, "last_step": last}
    values: dict[int, dict[str, float]] = {}
    at_ns: dict[int, int] = {}
    for row in reader.read(Samples(run_id=run_id, attempt=attempt, **window)).to_pylist():
        values.setdefault(row["step"], {})[row["metric"]] = row["value"]
        at_ns[row["step"]] = max(at_ns.get(row["step"], 0), row["at_ns"])
    stages = stage_seconds_by_step(reader.read(StageSteps(run_id=run_id, attempt=attempt, **window)))
    for row in reader.read(Steps(run_id=run_id, attempt=attempt, **window)).to_pylist():
        of_step = values.setdefault(row["step"], {})
        of_step[STEP_SECONDS] = row["duration_ns"] * _NS
        of_step |= {STAGE_SECONDS + stage.label: seconds for stage, seconds in stages.get(row["step"], {}).items()}
        at_ns[row["step"]] = row["start_ns"] + int(row["duration_ns"])
    return [StepValues(step=step, at_ns=at_ns[step], values=values[step]) for step in sorted(values)]


def event_of(finding: Finding) -> Event:
    """The event that trackers show for a finding."""
    return Event(
        step=finding.window.last_step,
        kind=str(finding.kind),
        severity=str(finding.severity),
        summary=finding.headline,
        next_step=finding.next_step,
    )


def tracked_run(reader: Reader, run_id: str, attempt: int) -> TrackedRun:
    """The run with the settings that trackers show."""
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    topology = topology_of(ranks)
    meta = meta_of_ranks(ranks, topology)[0]
    return TrackedRun(
        run_id=run_id,
        attempt=attempt,
        started_ns=min(ranks["started_ns"].to_pylist()),
        settings={
            "run": run_id,
            "attempt": str(attempt),
            "ranks": str(topology.world_size),
            "mesh": str(topology),
            "hosts": str(len(ranks["host"].unique())),
            **{name: meta[name] for name in SHOWN if name in meta},
        },
    )
