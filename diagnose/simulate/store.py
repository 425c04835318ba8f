"""A simulation into whatever ``--store`` names. The truth about it stays outside."""

import pyarrow as pa

from diagnose.simulate.run import Simulation
from diagnose.simulate.table import spans_table
from telemetry.imports.interface import ImportedRun, check_sound, checked_name
from telemetry.imports.write import Target, put_run
from telemetry.stages import Stage
from telemetry.stores.queries import HighWater
from telemetry.stores.reader import Reader


def as_run(simulation: Simulation) -> ImportedRun:
    """The run as it is stored."""
    plan = simulation.plan
    return ImportedRun(
        run_id=checked_name(plan.name),
        topology=plan.topology,
        hosts=dict(enumerate(plan.hosts)),
        started_ns=int(simulation.operations[Stage.STEP].start_ns.min()),
        meta={
            "simulated": "yes",
            "device": plan.device,
            "schedule": f"{plan.num_microbatches} microbatches, {plan.num_chunks} chunks",
        },
        spans=spans_table(simulation),
    )


def put_simulation(run: ImportedRun, samples: pa.Table, target: Target) -> None:
    """Store ``run`` with its ``samples``: what is killed on the way shows in no list.

    Raises:
        TakenNameError: a run of that name is stored, or a part of another one.
        UnreachableError: nobody answers there.
    """
    check_sound(run)
    put_run(run, _WithSamples(target, samples))


class _WithSamples:
    """A target that stores samples, too, before the ranks, which make a run complete."""

    def __init__(self, target: Target, samples: pa.Table) -> None:
        self.max_rows = target.max_rows
        self.reader: Reader = target.reader
        self._target = target
        self._samples = samples

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        if table == "ranks" and not self._are_stored(run):
            self._target.put("samples", self._samples, run)
        self._target.put(table, rows, run)

    def _are_stored(self, run: ImportedRun) -> bool:
        query = HighWater(table="samples", run_id=run.run_id, attempt=run.attempt)
        return bool(self.reader.read(query).num_rows)
