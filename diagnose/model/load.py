"""Read a :class:`diagnose.model.view.RunView` from a store."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.findings import StepWindow
from diagnose.model.compute_time import INNER_STAGES, WORK_STAGES, compute_time_of
from diagnose.model.exposed import exposed_of
from diagnose.model.fleet import Fleet, load_fleet
from diagnose.model.host_clocks import load_clocks
from diagnose.model.operations import SIZED, Floats, Ints, Operations, operations_of
from diagnose.model.profiled import load_profiled
from diagnose.model.roles import peer_groups
from diagnose.model.rollouts import rollout_work
from diagnose.model.view import SPEEDS, RunView, Series
from diagnose.settings import DetectorSettings
from telemetry.errors import UnknownRunError, UsageError
from telemetry.records import parse_meta, topology_of
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import (
    LAST_STEP,
    OperationColumns,
    Ranks,
    Samples,
    Spans,
    StageCounts,
    Steps,
    StoredRuns,
)
from telemetry.topology import Topology

DEFAULT_STEPS = 200
"""Number of steps without a window: the newest."""
MAX_OPERATIONS = 24_000_000
"""Limit of the operations in memory. For a larger run, fewer of the newest steps are loaded."""
AT_ONCE = 1_000_000
"""Operations of one query, unless one stage alone has more."""
METRICS = ("loss", "gradient-norm", *SPEEDS)
HISTORY_STEPS = 100_000
"""Number of steps up to the end of a window whose step times and samples are loaded."""


def newest_attempt(reader: Reader, run_id: str | None = None, attempt: int | None = None) -> tuple[str, int]:
    """The run and attempt that the arguments select: the newest if they are None.

    Raises:
        UnknownRunError: the store is empty, or holds no such run or attempt.
    """
    runs = reader.read(StoredRuns()).to_pylist()
    if not runs:
        raise UnknownRunError(
            "the store holds no run yet",
            hint="record one: `rankscope demo`, or rankscope.start(collector=...) in your loop",
        )
    for row in runs:
        if run_id in (None, row["run_id"]) and attempt in (None, row["attempt"]):
            return row["run_id"], row["attempt"]
    names = ", ".join(dict.fromkeys(f"{row['run_id']}/{row['attempt']}" for row in runs[:5]))
    wanted = run_id or "any run"
    raise UnknownRunError(
        f"no run {wanted!r}" + ("" if attempt is None else f" with attempt {attempt}"),
        hint=f"stored runs, newest first: {names}; `rankscope runs` lists all",
    )


def load_view(
    reader: Reader,
    run_id: str,
    attempt: int,
    window: StepWindow | None = None,
    *,
    max_operations: int = MAX_OPERATIONS,
    with_inner: bool = False,
) -> RunView:
    """The view of one attempt. Without a window: its newest 200 steps. ``with_inner``: see ``RunView.inner``.

    If the steps hold more than ``max_operations``, fewer of the newest are loaded.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
        UsageError: no step of the window is finished.
    """
    chosen = _choose_steps(reader, run_id, attempt, window, max_operations)
    with ThreadPoolExecutor(max_workers=4, thread_name_prefix="beside") as threads:
        samples, fleet = threads.submit(chosen.samples), threads.submit(chosen.fleet)
        profiled = threads.submit(load_profiled, reader, run_id, attempt, chosen.history.steps)
        clocks = threads.submit(load_clocks, reader, run_id, attempt, chosen.steps, chosen.step_ns)
        loaded = chosen.operations([stage for stage in Stage if stage is not Stage.STEP])
    waits = loaded.pop(Stage.COMMUNICATION_WAIT, None)
    operations = {stage: each for stage, each in loaded.items() if stage not in INNER_STAGES}
    inner = {stage: each for stage, each in loaded.items() if stage in INNER_STAGES}
    on_device = chosen.on_device()
    meta = meta_of_ranks(chosen.ranks, chosen.topology)
    compute = compute_time_of(operations, inner, peer_groups(chosen.topology, meta), on_device=on_device)
    return RunView(
        run_id=run_id,
        attempt=attempt,
        topology=chosen.topology,
        hosts=hosts_of(chosen.ranks, chosen.topology),
        steps=chosen.steps,
        step_ns=chosen.step_ns,
        work={**compute.work, **rollout_work(operations)},
        off_cpu=compute.off_cpu,
        overlap=compute.overlap,
        operations=operations,
        samples=samples.result(),
        history=chosen.history,
        profiled=profiled.result(),
        step_start_ns=chosen.step_start_ns,
        fleet=fleet.result(),
        settings=DetectorSettings.from_environment(),
        clocks=clocks.result(),
        on_device=on_device,
        meta=meta,
        exchanges=inner.get(Stage.EP_ALL_TO_ALL),
        inner=inner if with_inner else {},
        exposed=exposed_of(loaded, waits, on_device=on_device),
    )


def hosts_of(ranks: pa.Table, topology: Topology) -> tuple[str, ...]:
    """Host of each rank. Empty text for a rank that never reported."""
    hosts = [""] * topology.world_size
    for rank, host in zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True):
        if rank < topology.world_size:  # a run recorded again with a smaller grid leaves rows of removed ranks
            hosts[rank] = host
    return tuple(hosts)


def meta_of_ranks(ranks: pa.Table, topology: Topology) -> tuple[Mapping[str, str], ...]:
    """What each rank reported at its start. ``ranks``: the answer to ``Ranks``."""
    known = dict(zip(ranks["rank"].to_pylist(), ranks["meta"].to_pylist(), strict=True))
    return tuple(parse_meta(known.get(rank, "{}")) for rank in range(topology.world_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenSteps:
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
    """Whether the last step is the newest finished step of the attempt."""
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

    def operations(self, stages: Sequence[Stage]) -> dict[Stage, Operations]:
        """Operations of ``stages`` in these steps."""
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
                )
            )
            operations.update(operations_of(rows, self.steps, self.topology.world_size))
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


def _choose_steps(
    reader: Reader, run_id: str, attempt: int, window: StepWindow | None, max_operations: int
) -> _ChosenSteps:
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
    return _ChosenSteps(
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
    """The first row of the finished steps in the window, and the row after the last."""
    if window is None:
        return max(0, len(steps) - DEFAULT_STEPS), len(steps)
    first = int(np.searchsorted(steps, window.first_step))
    stop = int(np.searchsorted(steps, window.last_step, side="right"))
    if len(steps) and first == stop:
        end = f"to {window.last_step}" if window.last_step < LAST_STEP else "on"
        raise UsageError(
            f"no finished step from {window.first_step} {end}",
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
