"""The steps that a view is made of, and the queries about them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import StepWindow
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.fleet import Fleet, load_fleet
from diagnose.model.operations import SIZED, Floats, Ints, Operations, operations_of
from diagnose.model.view import SPEEDS, Series
from telemetry.errors import UnknownRunError, UsageError
from telemetry.records import topology_of
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import LAST_STEP, OperationColumns, Ranks, Samples, Spans, StageCounts, Steps
from telemetry.topology import Topology

DEFAULT_STEPS = 200
"""Number of steps of a view without a window: the newest steps."""
AT_ONCE = 1_000_000
"""Limit of the operations that one query reads, unless one stage alone has more."""
METRICS = ("loss", "gradient-norm", *SPEEDS)
HISTORY_STEPS = 100_000
"""Number of steps up to the end of a window whose step times and samples are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSteps:
    """The steps of a view, and the queries about them."""

    reader: Reader
    run_id: str
    attempt: int
    ranks: pa.Table
    """The answer to ``Ranks``."""
    topology: Topology
    steps: Ints
    step_ns: Floats
    step_start_ns: Ints
    """Wall clock of the begin of each step."""
    history: Series
    """Step times (ns) of the newest ``HISTORY_STEPS`` steps up to the last of these."""
    is_newest: bool
    """Whether the last step is the newest completed step of the attempt."""
    counts: Mapping[int, int]
    """Number of operations for each code of a stage, in these steps and perhaps in some before."""

    def samples(self) -> dict[str, Series]:
        """Samples of the steps of ``history`` and of the step in progress after them, by metric."""
        steps = self.history.steps
        table = self.reader.read(
            Samples(
                run_id=self.run_id,
                attempt=self.attempt,
                metrics=METRICS,
                first_step=int(steps[0]) if len(steps) else 0,
                last_step=LAST_STEP if self.is_newest or not len(steps) else int(steps[-1]) + 1,
            )
        )
        of_metric = {name: table.filter(pc.field("metric") == name) for name in METRICS}
        return {
            name: Series(
                steps=np.asarray(rows["step"].to_numpy(), dtype=np.int64),
                values=np.asarray(rows["value"].to_numpy(), dtype=np.float64),
            )
            for name, rows in of_metric.items()
            if rows.num_rows
        }

    def fleet(self) -> Fleet:
        """Samples and events of the hosts in these steps."""
        first_ns, last_ns = 0, 0
        if len(self.steps):
            first_ns = int(self.step_start_ns.min())
            last_ns = int((self.step_start_ns + self.step_ns.astype(np.int64)).max())
        num_hosts = len(self.ranks["host"].unique())
        return load_fleet(
            self.reader, self.run_id, self.attempt, first_ns, last_ns, num_hosts=num_hosts, up_to_now=self.is_newest
        )

    def on_device(self) -> bool:
        """Whether a device measured the compute spans of the last step. Such spans have a time of issue."""
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
                stages=tuple(map(int, WORK_STAGES)),
                limit=1,
            )
        )
        return bool(rows.num_rows and rows["issue_ns"][0].as_py())

    def operations(self, stages: Sequence[Stage], ranks: Ints | None = None) -> dict[Stage, Operations]:
        """Operations of ``stages`` in these steps. ``ranks``: the ranks of the columns, ascending; None: all."""
        operations: dict[Stage, Operations] = {}
        plain, sized = ([stage for stage in stages if (stage in SIZED) is sizes] for sizes in (False, True))
        for portion in (*self._portions(plain), *self._portions(sized)):
            rows = self.reader.read(
                OperationColumns(
                    run_id=self.run_id,
                    attempt=self.attempt,
                    first_step=int(self.steps[0]),
                    last_step=int(self.steps[-1]),
                    stages=tuple(map(int, portion)),
                    sizes=portion[0] in SIZED,
                    ranks=() if ranks is None else tuple(ranks.tolist()),
                )
            )
            if ranks is not None:
                columns = pa.array(np.searchsorted(ranks, rows["rank"].to_numpy()))
                rows = rows.set_column(rows.column_names.index("rank"), "rank", columns)
            num_ranks = self.topology.world_size if ranks is None else len(ranks)
            operations.update(operations_of(rows, self.steps, num_ranks))
        return {stage: operations[stage] for stage in stages if stage in operations}

    def _portions(self, stages: Sequence[Stage]) -> Iterator[list[Stage]]:
        """Stages for each query: few queries for a small run, little data at once for a large run."""
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


def choose_steps(
    reader: Reader, run_id: str, attempt: int, window: StepWindow | None, max_operations: int
) -> ChosenSteps:
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if not ranks.num_rows:
        raise UnknownRunError(
            f"no rank of {run_id!r} attempt {attempt} has sent records", hint="`rankscope runs` lists what is stored"
        )
    table = reader.read(Steps(run_id=run_id, attempt=attempt))
    steps, starts_ns = (np.asarray(table[name].to_numpy(), dtype=np.int64) for name in ("step", "start_ns"))
    step_ns = np.asarray(table["duration_ns"].to_numpy(), dtype=np.float64)
    first, stop = _rows(steps, window)
    counts = _counts(reader, run_id, attempt, steps[first:stop])
    if total := sum(counts.values()):
        first = max(first, stop - max(1, max_operations * (stop - first) // total))
    past = slice(max(0, stop - HISTORY_STEPS), stop)
    return ChosenSteps(
        reader=reader,
        run_id=run_id,
        attempt=attempt,
        ranks=ranks,
        topology=topology_of(ranks),
        steps=steps[first:stop],
        step_ns=step_ns[first:stop],
        step_start_ns=starts_ns[first:stop],
        history=Series(steps=steps[past], values=step_ns[past]),
        is_newest=stop == len(steps),
        counts=counts,
    )


def _rows(steps: Ints, window: StepWindow | None) -> tuple[int, int]:
    """The first row of the completed steps in the window, and the row after the last."""
    if window is None:
        return max(0, len(steps) - DEFAULT_STEPS), len(steps)
    first = int(np.searchsorted(steps, window.first_step))
    stop = int(np.searchsorted(steps, window.last_step, side="right"))
    if len(steps) and first == stop:
        end = f"to {window.last_step}" if window.last_step < LAST_STEP else "on"
        raise UsageError(
            f"no completed step from {window.first_step} {end}",
            hint=f"steps {steps[0]} to {steps[-1]} are stored",
        )
    return first, stop


def _counts(reader: Reader, run_id: str, attempt: int, steps: Ints) -> dict[int, int]:
    """Number of operations of each stage (codes) in these steps."""
    if not len(steps):
        return {}
    first, last = int(steps[0]), int(steps[-1])
    table = reader.read(StageCounts(run_id=run_id, attempt=attempt, first_step=first, last_step=last))
    return dict(zip(table["stage"].to_pylist(), table["spans"].to_pylist(), strict=True))
