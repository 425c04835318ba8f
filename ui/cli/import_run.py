"""The work of `rankscope import`: store traces of other tools as a run."""

from collections.abc import Mapping
from shlex import quote

from telemetry.imports.chakra import import_chakra
from telemetry.imports.interface import ImportedRun, Importer, ImportOptions
from telemetry.imports.kineto import import_kineto
from telemetry.imports.megascan import import_megascan
from telemetry.imports.nccl_inspector import import_nccl_inspector
from telemetry.imports.ndtimeline import import_ndtimeline
from telemetry.imports.nsys import import_nsys
from telemetry.imports.otlp import import_otlp
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.imports.torchtitan import import_torchtitan
from telemetry.imports.write import write_run
from telemetry.printable import printable
from telemetry.stores.address import without_password
from telemetry.topology import Topology
from ui.cli.commands.import_run import Format, ImportRunOptions
from ui.cli.output import out, progress

IMPORTERS: Mapping[Format, Importer] = {
    Format.STRAGGLER_ANALYSIS: import_straggler_analysis,
    Format.KINETO: import_kineto,
    Format.TORCHTITAN: import_torchtitan,
    Format.NDTIMELINE: import_ndtimeline,
    Format.MEGASCAN: import_megascan,
    Format.NCCL_INSPECTOR: import_nccl_inspector,
    Format.NSYS: import_nsys,
    Format.CHAKRA: import_chakra,
    Format.OTLP: import_otlp,
}


def import_run(options: ImportRunOptions) -> int:
    with progress.status(f"reading {options.format}"):
        run = IMPORTERS[Format(options.format)](options.paths, _import_options(options))
    with progress.status(f"storing {run.spans.num_rows:,} spans"):
        write_run(run, options.store)
    if options.json:
        out.print_json(data=_summary(run))
        return 0
    address = quote(without_password(options.store))
    out.print(
        f"{printable(run.run_id)}: {len(run.hosts)} ranks, {run.num_steps} steps, {run.spans.num_rows} spans; "
        f"next: rankscope diagnose {quote(run.run_id)} --store {address}",
        markup=False,
        highlight=False,
    )
    return 0


def _import_options(options: ImportRunOptions) -> ImportOptions:
    mesh = None if options.mesh is None else Topology.parse(options.mesh)
    return ImportOptions(name=options.name, meta=options.meta, dp=options.dp, pp=options.pp, tp=options.tp, mesh=mesh)


def _summary(run: ImportedRun) -> dict[str, object]:
    return {
        "schema": 1,
        "run": run.run_id,
        "attempt": run.attempt,
        "ranks": len(run.hosts),
        "steps": run.num_steps,
        "spans": run.spans.num_rows,
        "topology": {"dp": run.topology.dp, "pp": run.topology.pp, "tp": run.topology.tp},
        "mesh": str(run.topology),
    }
