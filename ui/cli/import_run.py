"""`rankscope import`: other people's traces into the store."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from telemetry.imports.interface import ImportedRun, Importer, ImportOptions
from telemetry.imports.kineto import import_kineto
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.imports.write import write_run
from telemetry.printable import printable
from telemetry.stores.address import without_password
from telemetry.topology import Topology
from ui.cli.options import DEFAULT_STORE, JsonOption, StoreOption, out, progress


class Format(StrEnum):
    """What can be imported."""

    STRAGGLER_ANALYSIS = "straggler-analysis"
    KINETO = "kineto"


IMPORTERS: Mapping[Format, Importer] = {
    Format.STRAGGLER_ANALYSIS: import_straggler_analysis,
    Format.KINETO: import_kineto,
}

FormatArgument = Annotated[
    Format,
    typer.Argument(
        metavar="FORMAT",
        help="straggler-analysis: trace-NAME.parquet with meta-NAME.yaml beside it, or their folder. "
        "kineto: PyTorch profiler traces, a .json or .json.gz for each rank, or their folder.",
        show_default=False,
    ),
]
PathsArgument = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or a folder.", show_default=False)]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the run; what the files say when left out.")]
MetaOption = Annotated[Path | None, typer.Option("--meta", help="straggler-analysis: the layout of the job.")]
DegreeOption = Annotated[int | None, typer.Option(min=1, help="kineto: the degree, where the files do not tell.")]

MeshOption = Annotated[
    str | None,
    typer.Option("--mesh", help="kineto: the axes in rank order, the slowest first: pp=2,dp_shard=4,tp=8."),
]


def import_run(
    format: FormatArgument,
    paths: PathsArgument,
    store: StoreOption = DEFAULT_STORE,
    name: NameOption = None,
    meta: MetaOption = None,
    dp: DegreeOption = None,
    pp: DegreeOption = None,
    tp: DegreeOption = None,
    mesh: MeshOption = None,
    json: JsonOption = False,
) -> None:
    """Store other people's traces as a run. All is read before anything is stored."""
    told = None if mesh is None else Topology.parse(mesh)
    options = ImportOptions(name=name, meta=meta, dp=dp, pp=pp, tp=tp, mesh=told)
    with progress.status(f"reading {format.value}"):
        run = IMPORTERS[format](paths, options)
    with progress.status(f"storing {run.spans.num_rows:,} spans"):
        write_run(run, store)
    if json:
        out.print_json(data=_summary(run))
        return
    out.print(
        f"{printable(run.run_id)}: {len(run.hosts)} ranks, {run.num_steps} steps, {run.spans.num_rows} spans; "
        f"next: rankscope diagnose {quote(run.run_id)} --store {quote(without_password(store))}",
        markup=False,
        highlight=False,
    )


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
