"""`rankscope simulate`: a run of any size with chosen faults, straight into a store."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from diagnose.simulate.noise import noise_named
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import KINDS, Truth, check_writable, parse_fault, truth_object, write_truth
from telemetry.imports.write import open_target
from telemetry.run_names import checked_run_name
from telemetry.stores.address import without_password
from telemetry.topology import Topology
from ui.cli.options import DEFAULT_STORE, JsonOption, StoreOption, out, progress

DegreeOption = Annotated[int, typer.Option(help="Degree of parallelism.")]
MeshOption = Annotated[
    str,
    typer.Option(
        help="Axes of the device mesh with their degrees, the slowest first, in place of --dp, --pp and --tp: "
        "pp=2,dp_shard=4,tp=2.",
        show_default=False,
    ),
]
ClockOption = Annotated[
    Literal["host", "device"],
    typer.Option(help="Clock of the spans. With `device`, the host issues work before the device runs it."),
]
FsdpOption = Annotated[
    bool, typer.Option("--fsdp", help="Shard parameters: gather them by layer inside forwards and backwards.")
]
ExposedOption = Annotated[
    bool, typer.Option("--no-prefetch", help="With --fsdp: gather a layer only when the one before it has ended.")
]
ChunksOption = Annotated[
    int, typer.Option(help="Model chunks on each pipeline rank; above 1 the schedule interleaves.")
]
MicrobatchesOption = Annotated[int, typer.Option(help="Microbatches a step on each replica.")]
StepsOption = Annotated[int, typer.Option(help="Steps.")]
SeedOption = Annotated[int, typer.Option(help="The same seed makes the same run, but for the time of day.")]
NoiseOption = Annotated[str, typer.Option(help="How durations scatter: recorded (as real runs do), heavy, or none.")]
DeviceOption = Annotated[Literal["cuda", "cpu"], typer.Option(help="On cpu processor time is measured.")]
HostOption = Annotated[int, typer.Option("--ranks-per-host", help="Ranks on each host.")]
CheckpointOption = Annotated[int, typer.Option("--checkpoint-every", help="Steps between checkpoints; 0: none.")]
CollectOption = Annotated[bool, typer.Option("--planned-gc", help="All ranks collect garbage at the end of each step.")]
OffsetOption = Annotated[float, typer.Option("--clock-offset-ms", help="Clocks of hosts are off by up to this.")]
DriftOption = Annotated[float, typer.Option("--clock-drift-ppm", help="Clocks of hosts run up to this fast or slow.")]
FaultOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="KIND:SETTINGS",
        help=f"A fault, such as slow:rank=5,factor=1.4; may be repeated. Kinds: {', '.join(KINDS)}.",
        show_default=False,
    ),
]
NameOption = Annotated[str, typer.Option(help="Name of the run.")]
TruthOption = Annotated[Path | None, typer.Option(help="Write the truth about the faults here.", show_default=False)]


def simulate_run(
    dp: DegreeOption = 4,
    pp: DegreeOption = 2,
    tp: DegreeOption = 2,
    mesh: MeshOption = "",
    chunks: ChunksOption = 1,
    microbatches: MicrobatchesOption = 8,
    steps: StepsOption = 40,
    fault: FaultOption = None,
    seed: SeedOption = 0,
    noise: NoiseOption = "recorded",
    device: DeviceOption = "cuda",
    clock: ClockOption = "host",
    fsdp: FsdpOption = False,
    no_prefetch: ExposedOption = False,
    ranks_per_host: HostOption = 8,
    checkpoint_every: CheckpointOption = 0,
    planned_gc: CollectOption = False,
    clock_offset_ms: OffsetOption = 0.0,
    clock_drift_ppm: DriftOption = 0.0,
    name: NameOption = "simulated",
    store: StoreOption = DEFAULT_STORE,
    truth: TruthOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate a run, and store it as if its ranks had recorded it. The truth about its faults stays outside."""
    plan = SimulatedRun(
        name=checked_run_name(name.strip()),
        topology=Topology.parse(mesh) if mesh else Topology(dp=dp, pp=pp, tp=tp),
        num_chunks=chunks,
        num_microbatches=microbatches,
        num_steps=steps,
        noise=noise_named(noise, on_cpu=device == "cpu"),
        gpus_per_host=ranks_per_host,
        clock_offset_ms=clock_offset_ms,
        clock_drift_ppm=clock_drift_ppm,
        device=device,
        clock=clock,
        fsdp=fsdp,
        prefetches=not no_prefetch,
        checkpoint_every=checkpoint_every,
        collects_by_plan=planned_gc,
        faults=tuple(parse_fault(text) for text in fault or ()),
        seed=seed,
    )
    plan = replace(plan, started_ns=time.time_ns() - int(plan.expected_s * 1e9))
    if truth:
        check_writable(truth)
    stored = _store(plan, store)
    if truth:
        write_truth(truth, plan, stored.truth)
    _print(plan, stored, store, json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is told of a run that was simulated and stored."""

    num_spans: int
    truth: tuple[Truth, ...]


def _store(plan: SimulatedRun, address: str) -> Stored:
    """Simulate ``plan`` into ``address``; whoever takes rows there is asked first."""
    with open_target(address) as target:
        with progress.status(f"simulating {plan.topology.world_size:,} ranks, {plan.num_steps:,} steps"):
            simulation = simulate(plan)
            stored = Stored(num_spans=simulation.num_spans, truth=simulation.truth)
            run, samples = as_run(simulation), samples_table(simulation)
            del simulation  # as large as its rows
        with progress.status(f"storing {stored.num_spans:,} spans"):
            put_simulation(run, samples, target)
            target.keep_clocks(run)
    return stored


def _print(plan: SimulatedRun, stored: Stored, store: str, json: bool) -> None:
    if json:
        spans = {"ranks": plan.topology.world_size, "steps": plan.num_steps, "spans": stored.num_spans}
        out.print_json(data=truth_object(plan, stored.truth) | spans)
        return
    lines = [
        f"{plan.name}: {plan.topology.world_size} ranks, {plan.num_steps} steps, {stored.num_spans} spans",
        *(f"truth: {one}" for one in stored.truth),
        f"next: rankscope diagnose {quote(plan.name)} --store {quote(without_password(store))}",
    ]
    out.print("\n".join(lines), markup=False, highlight=False)
