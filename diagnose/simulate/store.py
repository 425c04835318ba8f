"""Converts a simulation to rows, and stores them. The truth is not stored."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from diagnose.model.fleet import Fleet
from diagnose.model.operations import Bools, Int64s, Operations
from diagnose.simulate.run import Simulation
from telemetry.imports.interface import ImportedRun, check_sound, numbered
from telemetry.imports.write import Target, put_run
from telemetry.run_names import checked_run_name
from telemetry.stages import SpanClock, Stage, StageClass
from telemetry.stores.interface import Reader
from telemetry.stores.queries import HighWater
from telemetry.tables import HOST_EVENTS, HOST_SAMPLES, SAMPLES, SPANS

HOST_PACE = 0.3
"""Time in which a host issues the work of a device / time of the device for this work."""


def spans_table(simulation: Simulation) -> pa.Table:
    """Columns of ``telemetry.tables.SPANS``, by rank and ``seq``: the operations of a rank by time, then its steps."""
    parts = [_columns(stage, one, simulation) for stage, one in simulation.operations.items()]
    return numbered({name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])})


def samples_table(simulation: Simulation) -> pa.Table:
    """Columns of ``telemetry.tables.SAMPLES``. The last rank reports at the end of each step."""
    rank = simulation.plan.topology.world_size - 1
    at_ns = simulation.operations[Stage.STEP].end_ns[:, 0, rank]
    num_steps, num_metrics = simulation.plan.num_steps, len(simulation.samples)
    columns = {
        "rank": np.full(num_steps * num_metrics, rank),
        "seq": np.arange(num_steps * num_metrics),
        "step": np.repeat(simulation.plan.scene.steps, num_metrics),
        "at_ns": np.repeat(at_ns, num_metrics),
        "metric": list(simulation.samples) * num_steps,
        "value": np.stack([series.values for series in simulation.samples.values()], axis=1).ravel(),
    }
    return pa.table({name: pa.array(columns[name], SAMPLES.field(name).type) for name in SAMPLES.names}, schema=SAMPLES)


def host_samples_table(fleet: Fleet) -> pa.Table:
    """Columns of ``telemetry.tables.HOST_SAMPLES``."""
    parts = [
        pa.table(
            {
                "host": pa.repeat(one.host, len(one.at_ns)),
                "device": pa.repeat(one.device, len(one.at_ns)),
                "metric": pa.repeat(str(metric), len(one.at_ns)),
                "at_ns": one.at_ns,
                "value": one.value,
            },
            schema=HOST_SAMPLES,
        )
        for metric, series in fleet.series.items()
        for one in series
    ]
    return pa.concat_tables([HOST_SAMPLES.empty_table(), *parts]).combine_chunks()


def host_events_table(fleet: Fleet) -> pa.Table:
    """Columns of ``telemetry.tables.HOST_EVENTS``."""
    return pa.Table.from_pylist([asdict(event) for event in fleet.events], schema=HOST_EVENTS)


def _columns(
    stage: Stage, one: Operations, simulation: Simulation
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """Columns of the operations of one stage."""
    present = one.present
    steps = simulation.plan.scene.steps
    row, _, rank = np.nonzero(present)
    return {
        **_clock(stage, one, simulation, row, rank),
        "rank": rank.astype(np.uint32),
        "stage": np.full(len(rank), int(stage), dtype=np.uint8),
        "step": steps[row].astype(np.uint32),
        "start_ns": one.start_ns[present],
        "duration_ns": one.duration_ns[present],
        "cpu_ns": one.cpu_ns[present],
        "microbatch": one.microbatch[present],
        "chunk": one.chunk[present],
        "peer": one.peer[present],
        "size_bytes": (np.zeros_like(one.duration_ns) if one.size_bytes is None else one.size_bytes)[present],
        "op_seq": _numbers(stage, present),
    }


def _clock(
    stage: Stage, one: Operations, simulation: Simulation, row: Int64s, rank: Int64s
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """When the host issued each operation (0 if the host measured it), and the clock that measured it."""
    on_device = stage is Stage.STEP or stage.stage_class in (StageClass.COMPUTE, StageClass.COMMUNICATION)
    columns: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]
    if simulation.plan.clock == "host" or not on_device:
        columns = {"issue_ns": np.zeros(len(row), dtype=np.int64), "clock": np.full(len(row), int(SpanClock.HOST))}
    else:
        begin_ns = simulation.operations[Stage.STEP].start_ns[row, 0, rank]
        ahead_ns = (one.start_ns[one.present] - begin_ns) * HOST_PACE
        columns = {
            "issue_ns": begin_ns + np.rint(ahead_ns).astype(np.int64),
            "clock": np.full(len(row), int(SpanClock.DEVICE)),
        }
    return {name: values for name, values in columns.items() if name in SPANS.names}


def _numbers(stage: Stage, present: Bools) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    """Number of each operation on its rank, from 1. 0 for stages without communication."""
    if stage.stage_class is not StageClass.COMMUNICATION:
        return np.zeros(int(present.sum()), dtype=np.uint32)
    num_steps, _, num_ranks = present.shape
    number = np.cumsum(present.reshape(-1, num_ranks), axis=0, dtype=np.uint32).reshape(num_steps, -1, num_ranks)
    return np.asarray(number[present])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedRun(ImportedRun):
    """A run with samples and events of its hosts."""

    host_samples: pa.Table
    host_events: pa.Table


def as_run(simulation: Simulation) -> HostedRun:
    """The rows of a simulated run."""
    plan = simulation.plan
    return HostedRun(
        run_id=checked_run_name(plan.name),
        topology=plan.topology,
        hosts=dict(enumerate(plan.hosts)),
        started_ns=int(simulation.operations[Stage.STEP].start_ns.min()),
        meta=plan.words,
        meta_of_ranks=dict(enumerate(plan.words_of_ranks)) if plan.roles else {},
        spans=spans_table(simulation),
        host_samples=host_samples_table(simulation.fleet),
        host_events=host_events_table(simulation.fleet),
    )


def put_simulation(run: HostedRun, samples: pa.Table, target: Target) -> None:
    """Store ``run`` with its ``samples`` and the rows of its hosts. An incomplete run is not listed.

    Raises:
        TakenNameError: another run with this name is stored, completely or in part.
        UnreachableError: the store does not answer.
    """
    check_sound(run)
    further = {"host_events": run.host_events, "host_samples": run.host_samples, "samples": samples}
    put_run(run, _WithSamples(target, {table: rows for table, rows in further.items() if rows.num_rows}))


class _WithSamples:
    """A target that stores further tables before the table of ranks, which completes a run. Samples are stored last, so
    they show that all further tables are stored. Rows of hosts may be stored twice, because they count once."""

    def __init__(self, target: Target, further: Mapping[str, pa.Table]) -> None:
        self.max_rows = target.max_rows
        self.reader: Reader = target.reader
        self._target = target
        self._further = further

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        if table == "ranks" and not self._are_stored(run):
            for name, table_rows in self._further.items():
                self._target.put(name, table_rows, run)
        self._target.put(table, rows, run)

    def keep_clocks(self, run: ImportedRun) -> None:
        self._target.keep_clocks(run)

    def _are_stored(self, run: ImportedRun) -> bool:
        query = HighWater(table="samples", run_id=run.run_id, attempt=run.attempt)
        return bool(self.reader.read(query).num_rows)
