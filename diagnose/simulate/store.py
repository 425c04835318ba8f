"""A simulation into whatever ``--store`` names. The truth about it stays outside."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from diagnose.simulate.run import Simulation
from diagnose.simulate.table import host_events_table, host_samples_table, spans_table
from telemetry.imports.interface import ImportedRun, check_sound
from telemetry.imports.write import Target, put_run
from telemetry.run_names import checked_run_name
from telemetry.stages import Stage
from telemetry.stores.queries import HighWater
from telemetry.stores.reader import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedRun(ImportedRun):
    """A run, and what its hosts told meanwhile."""

    host_samples: pa.Table
    host_events: pa.Table


def as_run(simulation: Simulation) -> HostedRun:
    """The run as it is stored."""
    plan = simulation.plan
    return HostedRun(
        run_id=checked_run_name(plan.name),
        topology=plan.topology,
        hosts=dict(enumerate(plan.hosts)),
        started_ns=int(simulation.operations[Stage.STEP].start_ns.min()),
        meta=plan.words,
        spans=spans_table(simulation),
        host_samples=host_samples_table(simulation.fleet),
        host_events=host_events_table(simulation.fleet),
    )


def put_simulation(run: HostedRun, samples: pa.Table, target: Target) -> None:
    """Store ``run`` with its ``samples`` and what its hosts told: what is killed on the way shows in no list.

    Raises:
        TakenNameError: a run of that name is stored, or a part of another one.
        UnreachableError: nobody answers there.
    """
    check_sound(run)
    told = {"host_events": run.host_events, "host_samples": run.host_samples, "samples": samples}
    put_run(run, _WithSamples(target, {table: rows for table, rows in told.items() if rows.num_rows}))


class _WithSamples:
    """A target that stores other tables, too, before the ranks, which make a run complete. Samples, the last of them,
    tell whether all are there; rows of hosts that come twice count once."""

    def __init__(self, target: Target, told: Mapping[str, pa.Table]) -> None:
        self.max_rows = target.max_rows
        self.reader: Reader = target.reader
        self._target = target
        self._told = told

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        if table == "ranks" and not self._are_stored(run):
            for other, of_other in self._told.items():
                self._target.put(other, of_other, run)
        self._target.put(table, rows, run)

    def keep_clocks(self, run: ImportedRun) -> None:
        self._target.keep_clocks(run)

    def _are_stored(self, run: ImportedRun) -> bool:
        query = HighWater(table="samples", run_id=run.run_id, attempt=run.attempt)
        return bool(self.reader.read(query).num_rows)
