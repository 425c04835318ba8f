"""Read a :class:`diagnose.model.view.RunView` from a store."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from diagnose.findings import StepWindow
from diagnose.model.chosen_steps import choose_steps
from diagnose.model.compute_time import INNER_STAGES, WORK_STAGES, ComputeTime, compute_time_of
from diagnose.model.exposed import exposed_of
from diagnose.model.host_clocks import load_clocks
from diagnose.model.operations import Ints
from diagnose.model.profiled import load_profiled
from diagnose.model.roles import peer_groups
from diagnose.model.rollouts import rollout_work
from diagnose.model.view import RunView
from diagnose.settings import DetectorSettings
from telemetry.errors import UnknownRunError
from telemetry.records import parse_meta
from telemetry.stages import Stage, Stream
from telemetry.stores.interface import Reader
from telemetry.stores.queries import StoredRuns
from telemetry.topology import Topology

MAX_OPERATIONS = 24_000_000
"""Limit of the operations in memory. If the steps have more, only the newest of them are loaded."""
OF_COMPUTE_TIME = tuple(
    stage for stage in Stage if stage in (*WORK_STAGES, *INNER_STAGES, Stage.GC) or stage.stream is Stream.DP
)
"""The stages that compute time depends on."""


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
    wanted = ("" if run_id is None else f" {run_id!r}") + ("" if attempt is None else f" with attempt {attempt}")
    raise UnknownRunError(
        f"no run{wanted} is stored",
        hint=f"stored runs, newest first: {names}; `rankscope runs` lists all runs",
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
    """The view of one attempt. Without a window, it has the newest 200 steps. ``with_inner``: see ``RunView.inner``.

    If the steps have more than ``max_operations``, only the newest of them are loaded.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
        UsageError: no step of the window is finished.
    """
    chosen = choose_steps(reader, run_id, attempt, window, max_operations)
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
        exposed=exposed_of(loaded, waits, on_device=on_device, waiting_ns=compute.waiting_ns),
    )


def load_compute_time(
    reader: Reader, run_id: str, attempt: int, window: StepWindow, ranks: Ints | None = None
) -> ComputeTime:
    """The same compute time as in :func:`load_view`, without the rest of the view.

    Args:
        ranks: the ranks of the columns, ascending. None: all. If parameters are gathered inside compute spans, it must
            contain all peers of its ranks (``roles.peer_groups``): they are measured together.

    Raises:
        UnknownRunError: no rank of this attempt has reported.
        UsageError: no step of the window is finished.
    """
    chosen = choose_steps(reader, run_id, attempt, window, MAX_OPERATIONS)
    loaded = chosen.operations(OF_COMPUTE_TIME, ranks)
    groups = peer_groups(chosen.topology, meta_of_ranks(chosen.ranks, chosen.topology))
    return compute_time_of(
        {stage: each for stage, each in loaded.items() if stage not in INNER_STAGES},
        {stage: each for stage, each in loaded.items() if stage in INNER_STAGES},
        groups if ranks is None else groups[ranks],
        on_device=chosen.on_device(),
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
