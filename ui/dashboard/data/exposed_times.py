"""Exposed communication of each rank, step by step, as ``rankscope diagnose`` computes it."""

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.exposed import AXIS_OF_STAGE, exposed_along
from diagnose.model.load import load_view
from diagnose.model.view import RunView
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from ui.dashboard.data.core import Reads
from ui.dashboard.records import Floats, Ints, RunFacts


def exposed_ns(reads: Reads, facts: RunFacts, stage: Stage, steps: Ints) -> Floats:
    """Exposed time along the axis of a stage, [steps, ranks]. NaN if it is not known, or has too many operations."""
    unknown = np.full((len(steps), facts.topology.world_size), np.nan)
    num_operations = facts.num_spans * len(steps) / max(1, len(facts.steps.step))
    axis = AXIS_OF_STAGE.get(stage)
    if axis is None or not 0 < num_operations <= reads.max_own_operations:
        return unknown
    run, window = facts.summary, StepWindow(first_step=int(steps[0]), last_step=int(steps[-1]))

    def load(reader: Reader) -> Floats:
        return _along(load_view(reader, run.run_id, run.attempt, window), axis, steps, unknown)

    newest = reads.reports.newest_view(run)
    if newest is not None and np.isin(steps, newest.steps).all():
        return _along(newest, axis, steps, unknown)
    return reads.compute(run, ("exposed", axis, window), load)


def _along(view: RunView, axis: str, steps: Ints, unknown: Floats) -> Floats:
    rows, found = np.isin(view.steps, steps), exposed_along(view).get(axis)
    return unknown if found is None or rows.sum() != len(steps) else found[rows]
