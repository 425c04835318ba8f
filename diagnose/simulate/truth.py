"""What was done to a simulated run: for whoever checks a verdict afterwards, never into the store."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from diagnose.ranges import fold_ranks
from diagnose.simulate.clocks import clocks_of
from diagnose.simulate.fault_texts import fault_text
from diagnose.simulate.faults import Fault
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.scene import Conditions
from telemetry.errors import UsageError
from telemetry.files.private_modes import file_mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One fault: what it was, and the finding that would be right."""

    fault: str
    """As it was asked for."""
    kind: str
    """Of the finding that names it: ``diagnose.findings.Kind``."""
    ranks: tuple[int, ...]
    """Ranks to blame; empty: none in particular."""
    hosts: tuple[str, ...]
    pp: int | None
    """Pipeline stage to blame."""
    first_step: int
    last_step: int
    """Steps of the run in which it is at work."""

    def __str__(self) -> str:
        """``compute-straggler of rank 5 (slow:rank=5,factor=1.4), steps 0 to 39``."""
        named = f" of pp{self.pp}" if self.pp is not None else ""
        named += f" of rank{'s'[: len(self.ranks) > 1]} {fold_ranks(self.ranks)}" if self.ranks else ""
        return f"{self.kind}{named} ({self.fault}), steps {self.first_step} to {self.last_step}"


def strike(fault: Fault, conditions: Conditions, random: np.random.Generator) -> Truth:
    """Let ``fault`` change the conditions, and tell the truth about it."""
    scene = conditions.scene
    blame = fault.strike(conditions, random)
    return Truth(
        fault=fault_text(fault),
        kind=fault.kind.value,
        ranks=blame.ranks,
        hosts=tuple(dict.fromkeys(scene.hosts[rank] for rank in blame.ranks)),
        pp=blame.pp,
        first_step=max(fault.first_step, scene.first_step),
        last_step=min(fault.last_step, int(scene.steps[-1])),
    )


def truth_object(plan: SimulatedRun, truth: Sequence[Truth]) -> dict[str, object]:
    """The truth as one JSON object."""
    return {
        "schema": 1,
        "run": plan.name,
        "topology": {
            "dp": plan.topology.dp,
            "pp": plan.topology.pp,
            "tp": plan.topology.tp,
            "mesh": str(plan.topology),
        },
        "first_step": plan.first_step,
        "num_steps": plan.num_steps,
        "seed": plan.seed,
        "faults": [asdict(one) for one in truth],
        **_clocks(plan),
    }


def _clocks(plan: SimulatedRun) -> dict[str, object]:
    """How far each host's clock is off as the run begins, and how fast it runs; nothing where all are right."""
    if not plan.clock_offset_ms and not plan.clock_drift_ppm:
        return {}
    clocks = clocks_of(plan, Draws(noise=plan.noise, seed=plan.seed))
    columns = (clocks.offset_ns - plan.started_ns).tolist(), (clocks.rate * 1e6).tolist()
    rows = zip(clocks.hosts, *columns, strict=True)
    return {"clocks": {host: {"offset_ns": by_ns, "drift_ppm": ppm} for host, by_ns, ppm in rows}}


def check_writable(path: Path) -> None:
    """Refuse a path for the truth before anything is stored.

    Raises:
        UsageError: nothing can be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without O_NONBLOCK a FIFO that has no reader would wait for one.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, file_mode()))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="--truth names a file that can be written") from error


def write_truth(path: Path, plan: SimulatedRun, truth: Sequence[Truth]) -> None:
    """Put the truth down at ``path``."""
    path.write_text(json.dumps(truth_object(plan, truth), indent=2) + "\n")
