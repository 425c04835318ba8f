"""Which parts of a step the heat map and the timeline of a run show."""

import base64
from typing import Any

import numpy as np

from telemetry.stages import STAGE_BY_CODE, Stage, StageClass
from telemetry.stores.interface import Reader
from tests.deadline import until
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import StillWorking
from ui.dashboard.data.stage_times import stage_times
from ui.dashboard.defaults import chosen_steps
from ui.dashboard.pages import PAGES
from ui.dashboard.view_state import View, ViewState

PARTS = ("forward", "backward", "optimizer", "collectives")
READY_S = 60.0


def missing_parts(reader: Reader, run_id: str, num_ranks: int) -> list[str]:
    """Parts that a page does not show for every rank, such as ``heat map: optimizer``."""
    reads = Reads(reader)
    heat, line = _in_heat_map(reads, run_id, num_ranks), _in_timeline(reads, run_id, num_ranks)
    pages = (("heat map", heat), ("timeline", line))
    return [f"{page}: {part}" for page, shown in pages for part in PARTS if part not in shown]


def part_of(stage: Stage) -> str:
    """One of ``PARTS``, or another name."""
    names = {
        Stage.FORWARD_COMPUTE: "forward",
        Stage.BACKWARD_COMPUTE: "backward",
        Stage.OPTIMIZER: "optimizer",
    }
    return "collectives" if stage.stage_class is StageClass.COMMUNICATION else names.get(stage, stage.label)


def _in_heat_map(reads: Reads, run_id: str, num_ranks: int) -> set[str]:
    """Parts for which the page has a chart with a value of each rank."""
    facts = reads.facts(ViewState(view=View.HEAT_MAP, run=run_id))
    shown = set()
    for stage in facts.stages:
        state = ViewState(view=View.HEAT_MAP, run=run_id, stage=stage)
        times = stage_times(reads, facts, stage, state.clock, chosen_steps(state, facts), state.metric)
        has_all = times.ns.shape[1] == num_ranks and bool(np.isfinite(times.ns).any(axis=0).all())
        if has_all and _drawn(lambda state=state: PAGES[View.HEAT_MAP].charts["cells"].draw(state, reads)) is not None:
            shown.add(part_of(stage))
    return shown


def _in_timeline(reads: Reads, run_id: str, num_ranks: int) -> set[str]:
    """Parts of which the page draws a span in the row of each rank."""
    state = ViewState(view=View.TIMELINE, run=run_id)
    data = _drawn(lambda: PAGES[View.TIMELINE].canvases["timeline"].draw(state, reads))
    if data is None:
        return set()
    columns = {name: _unpacked(data["columns"][name]) for name in ("row", "stage")}
    rows_of: dict[str, set[int]] = {}
    for row, stage in zip(columns["row"], columns["stage"], strict=True):
        rows_of.setdefault(part_of(STAGE_BY_CODE[stage]), set()).add(row)
    return {part for part, rows in rows_of.items() if len(rows) == num_ranks}


def _drawn(draw: Any) -> Any:
    """What ``draw`` returns, once the detectors are ready."""
    answers: list[Any] = []

    def is_ready() -> bool:
        try:
            answers.append(draw())
        except StillWorking:
            return False
        return True

    until(is_ready, seconds=READY_S, what="the page")
    return answers[0]


def _unpacked(column: dict[str, str]) -> list[int]:
    values: list[int] = np.frombuffer(base64.b64decode(column["bdata"]), dtype="<" + column["dtype"]).tolist()
    return values
