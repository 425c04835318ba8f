"""The steps of an attempt that are looked at, and what a reader is asked of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.model.fleet import Fleet, load_fleet
from diagnose.model.host_clocks import load_clocks
from diagnose.model.operations import Operations, operations_of
from diagnose.model.view import FloatVector, IntVector, Series
from telemetry.clocks.align_evidence import ClockTable
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP, OperationColumns, Samples, Spans
from telemetry.topology import Topology

AT_ONCE = 1_000_000
"""Operations in flight at once, or those of one stage."""
COMPUTES = (int(Stage.FORWARD_COMPUTE), int(Stage.BACKWARD_COMPUTE))
METRICS = ("loss", "gradient-norm", "tokens-per-second", "mfu")
HISTORY_STEPS = 100_000
"""Steps before the end of a window whose times and samples detectors see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSteps:
    """Some steps of an attempt."""

    reader: Reader
    run_id: str
    attempt: int
    ranks: pa.Table
    """The answer to ``Ranks``."""
    topology: Topology
    history: Series
    """Wall time (ns) of every finished step."""
    starts_ns: IntVector
    """Wall clock at which each of those began."""
    rows: slice
    """Those of them that are looked at."""
    counts: Mapping[int, int]
    """Operations by code of their stage, in these steps at least."""

    @property
    def steps(self) -> IntVector:
        """Their numbers."""
        return self.history.steps[self.rows]

    @property
    def step_ns(self) -> FloatVector:
        """Wall time of each."""
        return self.history.values[self.rows]

    @property
    def step_start_ns(self) -> IntVector:
        """Wall clock at which each began."""
        return self.starts_ns[self.rows]

    def history_until_then(self) -> Series:
        """Of the newest ``HISTORY_STEPS`` steps up to the last of these."""
        return Series(steps=self.history.steps[self._past], values=self.history.values[self._past])

    def samples(self) -> dict[str, Series]:
        """Of the same steps and what is in flight after them, by metric."""
        steps, is_newest = self.history.steps[self._past], self.rows.stop == len(self.history.steps)
        first = int(steps[0]) if len(steps) else 0
        last = LAST_STEP if is_newest or not len(steps) else int(steps[-1]) + 1
        return _samples(self.reader, self.run_id, self.attempt, first, last)

    @property
    def _past(self) -> slice:
        return slice(max(0, self.rows.stop - HISTORY_STEPS), self.rows.stop)

    def clocks(self) -> ClockTable:
        """Of the hosts, in these steps."""
        return load_clocks(self.reader, self.run_id, self.attempt, self.steps, self.step_ns)

    def fleet(self) -> Fleet:
        """What hosts told in these steps."""
        return load_fleet(
            self.reader,
            self.run_id,
            self.attempt,
            *_time_of(self.step_start_ns, self.step_ns),
            num_hosts=len(self.ranks["host"].unique()),
            up_to_now=self.rows.stop == len(self.history.steps),
        )

    def on_device(self) -> bool:
        """Whether a device measured the computes of the last of these steps: then it is noted when the host issued
        them."""
        if not len(self.steps):
            return False
        last = int(self.steps[-1])
        rows = self.reader.read(
            Spans(
                run_id=self.run_id,
                attempt=self.attempt,
                first_step=last,
                last_step=last,
                ranks=(int(self.ranks["rank"][0].as_py()),),
                stages=COMPUTES,
                limit=1,
            )
        )
        return bool(rows.num_rows and rows["issue_ns"][0].as_py())

    def load(self, stages: Sequence[Stage]) -> dict[Stage, Operations]:
        """Their operations of ``stages``."""
        operations: dict[Stage, Operations] = {}
        for together in self._portions(stages):
            operations.update(operations_of(self._read(together), self.steps, self.topology.world_size))
        return {stage: operations[stage] for stage in stages if stage in operations}

    def _portions(self, stages: Sequence[Stage]) -> Iterator[list[Stage]]:
        """Stages that are asked for together: few questions for a small run, little in flight of a large one."""
        portion: list[Stage] = []
        size = 0
        for stage in stages:
            count = self.counts.get(int(stage), 0)
            if portion and size + count > AT_ONCE:
                yield portion
                portion, size = [], 0
            if count and len(self.steps):
                portion.append(stage)
                size += count
        if portion:
            yield portion

    def _read(self, stages: Sequence[Stage]) -> pa.Table:
        return self.reader.read(
            OperationColumns(
                run_id=self.run_id,
                attempt=self.attempt,
                first_step=int(self.steps[0]),
                last_step=int(self.steps[-1]),
                stages=tuple(map(int, stages)),
            )
        )


def _samples(reader: Reader, run_id: str, attempt: int, first_step: int, last_step: int) -> dict[str, Series]:
    asked = Samples(run_id=run_id, attempt=attempt, metrics=METRICS, first_step=first_step, last_step=last_step)
    table = reader.read(asked)
    found = {}
    for name in METRICS:
        rows = table.filter(pc.field("metric") == name)
        if rows.num_rows:
            steps = np.asarray(rows["step"].to_numpy(), dtype=np.int64)
            found[name] = Series(steps=steps, values=np.asarray(rows["value"].to_numpy(), dtype=np.float64))
    return found


def _time_of(starts_ns: IntVector, step_ns: FloatVector) -> tuple[int, int]:
    """Wall clock from the first step to the end of the last; zeros where there is none."""
    if not len(starts_ns):
        return 0, 0
    return int(starts_ns.min()), int((starts_ns + step_ns.astype(np.int64)).max())
