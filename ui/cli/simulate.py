"""The work of `rankscope simulate`: simulate a run of any size with chosen faults, and store it."""

import time
from dataclasses import dataclass, replace
from shlex import quote

from diagnose.simulate.noise import noise_named
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate
from diagnose.simulate.store import as_run, put_simulation, samples_table
from diagnose.simulate.truth import Truth, check_writable, parse_fault, truth_object, write_truth
from telemetry.imports.write import open_target
from telemetry.run_names import checked_run_name
from telemetry.stores.address import without_password
from telemetry.topology import Topology
from ui.cli.commands.simulate import SimulateOptions
from ui.cli.output import out, progress


def simulate_run(options: SimulateOptions) -> int:
    plan = _plan(options)
    plan = replace(plan, started_ns=time.time_ns() - int(plan.expected_s * 1e9))
    if options.truth:
        check_writable(options.truth)
    stored = _store(plan, options.store)
    if options.truth:
        write_truth(options.truth, plan, stored.truth)
    _print(plan, stored, options.store, options.json)
    return 0


def _plan(options: SimulateOptions) -> SimulatedRun:
    roles = parse_roles(options.roles)
    grid = Topology.parse(options.mesh) if options.mesh else Topology(dp=options.dp, pp=options.pp, tp=options.tp)
    if roles and not options.mesh:
        grid = Topology(dp=sum(role.num_ranks for role in roles))
    return SimulatedRun(
        name=checked_run_name(options.name.strip()),
        topology=grid,
        num_chunks=options.chunks,
        num_microbatches=options.microbatches,
        num_steps=options.steps,
        noise=noise_named(options.noise, on_cpu=options.device == "cpu"),
        gpus_per_host=options.ranks_per_host,
        clock_offset_ms=options.clock_offset_ms,
        clock_drift_ppm=options.clock_drift_ppm,
        device=options.device,
        clock=options.clock,
        fsdp=options.fsdp,
        prefetches=not options.no_prefetch,
        experts=options.experts,
        roles=roles,
        checkpoint_every=options.checkpoint_every,
        collects_by_plan=options.planned_gc,
        faults=tuple(parse_fault(text) for text in options.fault or ()),
        seed=options.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Facts about a simulated run that was stored."""

    num_spans: int
    truth: tuple[Truth, ...]


def _store(plan: SimulatedRun, address: str) -> Stored:
    """Simulate ``plan`` and store it at ``address``. The store is opened first, so that its errors come early."""
    with open_target(address) as target:
        with progress.status(f"simulating {plan.topology.world_size:,} ranks, {plan.num_steps:,} steps"):
            simulation = simulate(plan)
            stored = Stored(num_spans=simulation.num_spans, truth=simulation.truth)
            run, samples = as_run(simulation), samples_table(simulation)
            del simulation  # frees as much memory as its rows need
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
