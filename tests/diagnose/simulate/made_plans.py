"""Plans of small runs."""

from typing import Any

from diagnose.simulate.noise import noise_named
from diagnose.simulate.plan import MILLISECONDS, Device, SimulatedRun
from diagnose.simulate.truth import parse_fault
from telemetry.stages import Stage
from telemetry.topology import Topology

GRID = Topology(dp=4, pp=2, tp=2)


def plan(
    *faults: str,
    topology: Topology = GRID,
    noise: str = "recorded",
    device: Device = "cuda",
    num_steps: int = 12,
    num_microbatches: int = 4,
    **more: Any,
) -> SimulatedRun:
    """A plan with these faults, given as text."""
    return SimulatedRun(
        topology=topology,
        noise=noise_named(noise, on_cpu=device == "cpu"),
        device=device,
        num_steps=num_steps,
        num_microbatches=num_microbatches,
        faults=tuple(parse_fault(text) for text in faults),
        **more,
    )


def only(**milliseconds: float) -> dict[Stage, float]:
    """Durations of stages, e.g. ``forward_compute=10``. All other stages take no time."""
    return dict.fromkeys(MILLISECONDS, 0.0) | {Stage[name.upper()]: value for name, value in milliseconds.items()}
