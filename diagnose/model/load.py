"""Ask a reader for what a :class:`diagnose.model.view.RunView` holds.

What a rank said about itself as it began: ``meta`` of the table ``ranks``.
"""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.model.chosen_steps import ChosenSteps
from diagnose.model.compute_time import INNER_STAGES, compute_time_of
from diagnose.model.view import IntVector, RunView, Series
from diagnose.settings import DetectorSettings
from telemetry.errors import UnknownRunError, UsageError
from telemetry.records import topology_of
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks, StageCounts, Steps, StoredRuns
from telemetry.topology import Topology


def told_by(meta: str) -> Mapping[str, str]:
    """The words of one rank, from a JSON object; none where it is something else."""
    with suppress(ValueError, RecursionError):
        told = json.loads(meta)
        return {str(key): str(value) for key, value in told.items()} if isinstance(told, dict) else {}
    return {}


DEFAULT_STEPS = 200
"""Steps looked at when no window is asked for: the newest so many."""
MAX_OPERATIONS = 24_000_000
"""More than this is not held: fewer of the newest steps are looked at."""


def newest_attempt(reader: Reader, run_id: str | None = None, attempt: int | None = None) -> tuple[str, int]:
    """The run and attempt meant: the newest where not said.

    Raises:
        UnknownRunError: the store is empty, or holds no such run or attempt.
    """
    runs = reader.read(StoredRuns()).to_pylist()
    if not runs:
        raise UnknownRunError(
            "the store holds no run yet",
            hint="record one: `rankscope demo`, or telemetry.start(collector=...) in your loop",
        )
    for row in runs:
        if run_id in (None, row["run_id"]) and attempt in (None, row["attempt"]):
            return row["run_id"], row["attempt"]
    names = ", ".join(dict.fromkeys(f"{row['run_id']}/{row['attempt']}" for row in runs[:5]))
    wanted = run_id or "any run"
    raise UnknownRunError(
        f"no run {wanted!r}" + ("" if attempt is None else f" with attempt {attempt}"),
        hint=f"stored, newest first: {names}; `rankscope runs` lists all",
    )


def load_view(
    reader: Reader,
    run_id: str,
    attempt: int,
    window: StepWindow | None = None,
    *,
    max_operations: int = MAX_OPERATIONS,
) -> RunView:
    """The view of one attempt; the newest 200 steps where no window is given, fewer where those hold more than
    ``max_operations``.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
        UsageError: no step of the window is finished.
    """
    ranks = reader.read(Ranks(run_id=run_id, attempt=attempt))
    if not ranks.num_rows:
        raise UnknownRunError(
            f"no rank of {run_id!r} attempt {attempt} has sent records", hint="`rankscope runs` lists what is stored"
        )
    history, starts_ns = _history(reader, run_id, attempt)
    asked = _rows(history.steps, window)
    counts = _counts(reader, run_id, attempt, history.steps[asked])
    rows = slice(
        max(asked.start, asked.stop - _affordable(asked.stop - asked.start, counts, max_operations)), asked.stop
    )
    return _view(
        ChosenSteps(
            reader=reader,
            run_id=run_id,
            attempt=attempt,
            ranks=ranks,
            topology=topology_of(ranks),
            history=history,
            starts_ns=starts_ns,
            rows=rows,
            counts=counts,
        )
    )


def _view(chosen: ChosenSteps) -> RunView:
    """All of it at once: samples, fleet and clocks are asked for beside the operations. In a small run they take as
    long as those do."""
    with ThreadPoolExecutor(max_workers=3, thread_name_prefix="beside") as beside:
        samples, fleet, clocks = (
            beside.submit(chosen.samples),
            beside.submit(chosen.fleet),
            beside.submit(chosen.clocks),
        )
        loaded = chosen.load([stage for stage in Stage if stage is not Stage.STEP])
    operations = {stage: one for stage, one in loaded.items() if stage not in INNER_STAGES}
    inner = {stage: one for stage, one in loaded.items() if stage in INNER_STAGES}
    on_device = chosen.on_device()
    own = compute_time_of(operations, inner, chosen.topology.index["pp"], on_device=on_device)
    return RunView(
        run_id=chosen.run_id,
        attempt=chosen.attempt,
        topology=chosen.topology,
        hosts=hosts_of(chosen.ranks, chosen.topology),
        steps=chosen.steps,
        step_ns=chosen.step_ns,
        work=own.work,
        off_cpu=own.off_cpu,
        overlap=own.overlap,
        operations=operations,
        samples=samples.result(),
        history=chosen.history_until_then(),
        step_start_ns=chosen.step_start_ns,
        fleet=fleet.result(),
        settings=DetectorSettings.from_environment(),
        clocks=clocks.result(),
        on_device=on_device,
        words=_words(chosen.ranks, chosen.topology),
    )


def hosts_of(ranks: pa.Table, topology: Topology) -> tuple[str, ...]:
    """Host of each rank; empty text where a rank never reported."""
    hosts = [""] * topology.world_size
    for rank, host in zip(ranks["rank"].to_pylist(), ranks["host"].to_pylist(), strict=True):
        if rank < topology.world_size:  # a run recorded again with a smaller grid leaves rows of ranks that are no more
            hosts[rank] = host
    return tuple(hosts)


def _words(ranks: pa.Table, topology: Topology) -> tuple[Mapping[str, str], ...]:
    words: list[Mapping[str, str]] = [{}] * topology.world_size
    for rank, meta in zip(ranks["rank"].to_pylist(), ranks["meta"].to_pylist(), strict=True):
        if rank < topology.world_size:
            words[rank] = told_by(meta)
    return tuple(words)


def _history(reader: Reader, run_id: str, attempt: int) -> tuple[Series, IntVector]:
    """Wall time of each finished step, and when it began."""
    table = reader.read(Steps(run_id=run_id, attempt=attempt))
    series = Series(
        steps=np.asarray(table["step"].to_numpy(), dtype=np.int64),
        values=np.asarray(table["duration_ns"].to_numpy(), dtype=np.float64),
    )
    return series, np.asarray(table["start_ns"].to_numpy(), dtype=np.int64)


def _rows(steps: IntVector, window: StepWindow | None) -> slice:
    """Which of the finished steps are asked for."""
    if window is None:
        return slice(max(0, len(steps) - DEFAULT_STEPS), len(steps))
    first = int(np.searchsorted(steps, window.first_step))
    stop = int(np.searchsorted(steps, window.last_step, side="right"))
    if len(steps) and first == stop:
        raise UsageError(
            f"no finished step from {window.first_step} to {window.last_step}",
            hint=f"steps {steps[0]} to {steps[-1]} are stored",
        )
    return slice(first, stop)


def _counts(reader: Reader, run_id: str, attempt: int, steps: IntVector) -> dict[int, int]:
    """Operations of each stage (codes) in these steps."""
    if not len(steps):
        return {}
    first, last = int(steps[0]), int(steps[-1])
    table = reader.read(StageCounts(run_id=run_id, attempt=attempt, first_step=first, last_step=last))
    return dict(zip(table["stage"].to_pylist(), table["spans"].to_pylist(), strict=True))


def _affordable(num_steps: int, counts: Mapping[int, int], max_operations: int) -> int:
    """How many of these steps are held."""
    total = sum(counts.values())
    return max(1, max_operations * num_steps // total) if total else num_steps
