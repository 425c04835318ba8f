"""The faults of a simulated run, and the truth about them. It is used to check a verdict and never stored with the run.

A fault is written as a kind and its settings, like faults of the trainer:

slow:rank=5,factor=1.4            compute of a rank takes `factor` times as long; or of all ranks of host=gpu-003
throttle:rank=5,factor=1.4        the clock of its GPU is reduced; shape=waves (period= steps) or ramp; reason=heat,
                                  power or brake
stage:pp=3,factor=1.3             a pipeline stage has more work than the others
duration:stage=optimizer,factor=2 a stage of the step takes longer on all ranks, as after an upgrade
sequences:spread=0.3              microbatches of unequal length; shape=lognormal or heavy
gc                                garbage collection inside forwards, at irregular steps; also every= (steps), ms=,
                                  share= (of the ranks), rank=, host=
link:host=gpu-003,factor=3        a slow network of a host, or of rank=5; axis=all, dp or pp
flap:host=gpu-003,seconds=4       a network card loses its link for seconds; or the card of rank=5; times= in the run
data-stall:seconds=2              late data; share= of the steps, rank=, host=
drift:ms=100                      gradients are launched later in each step; rank=, host=
contention:host=gpu-003,factor=2  other processes use the cores (--device cpu)
decline:factor=2                  communication of all ranks becomes slower
loss:step=30,how=nan              the loss is not a number, or how=jump by size=
checkpoint:rank=5,factor=4        a slow writer (--checkpoint-every)
tail:factor=3                     the last rollouts of a step are long, on changing ranks; share= of the steps (--roles)
idle:role=reward,factor=4         a role has too little work (--roles)
experts:factor=2                  the experts of the ranks at ep= receive more tokens than others (--experts)

All kinds except loss also accept first_step= and last_step=.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from math import inf
from pathlib import Path
from typing import Any, get_args

import numpy as np

from diagnose.ranges import fold_ranks
from diagnose.simulate.faults import Fault, HeavyStage, LongStage, Loss, Sequences, Slow, Throttle
from diagnose.simulate.host_faults import Collections, Contention, DataStall, Decline, Drift, Flap, SlowLink, SlowWriter
from diagnose.simulate.job_faults import IdleRole, Tail, UnequalExperts
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.recording import clocks_of
from diagnose.simulate.scene import Conditions
from telemetry.errors import UsageError
from telemetry.files.access import file_mode

KINDS: dict[str, type[Any]] = {
    "slow": Slow,
    "throttle": Throttle,
    "stage": HeavyStage,
    "duration": LongStage,
    "sequences": Sequences,
    "gc": Collections,
    "link": SlowLink,
    "flap": Flap,
    "data-stall": DataStall,
    "drift": Drift,
    "contention": Contention,
    "decline": Decline,
    "loss": Loss,
    "checkpoint": SlowWriter,
    "tail": Tail,
    "idle": IdleRole,
    "experts": UnequalExperts,
}
KIND_OF: dict[type[Any], str] = {fault: kind for kind, fault in KINDS.items()}
HINT = f"kinds are {', '.join(KINDS)}. Example: slow:rank=5,factor=1.4"


def parse_fault(text: str) -> Fault:
    """The fault that ``text`` describes. The run checks later whether its rank, host or stage exists.

    Raises:
        UsageError: the kind is unknown, or a setting is missing, unknown, of the wrong type, negative or not finite.
    """
    kind, _, settings = text.partition(":")
    if kind not in KINDS:
        raise UsageError(f"unknown fault {kind!r}", hint=HINT)
    known = {field.name: field for field in fields(KINDS[kind])}
    given = dict(pair.partition("=")[::2] for pair in settings.split(",") if pair)
    for name in given:
        if name not in known:
            raise UsageError(f"fault {text!r}: unknown setting {name!r}", hint=f"known: {', '.join(known)}")
    for name, field in known.items():
        if name not in given and field.default is MISSING:
            raise UsageError(f"fault {text!r}: {name}= is missing", hint=f"settings are {', '.join(known)}")
    fault: Fault = KINDS[kind](**{name: _value(known[name].type, value, name, text) for name, value in given.items()})
    return fault


def fault_text(fault: Fault) -> str:
    """The text that describes ``fault``, without settings that have their default value."""
    values = [(field, getattr(fault, field.name)) for field in fields(fault)]  # type: ignore[arg-type]
    settings = ",".join(f"{field.name}={_plain(value)}" for field, value in values if value != field.default)
    return f"{KIND_OF[type(fault)]}:{settings}".rstrip(":")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(kind: Any, value: str, name: str, text: str) -> Any:
    choices = get_args(kind)
    if choices and value not in choices:
        raise UsageError(f"fault {text!r}: {name} is {value!r}", hint=f"{name} is one of {', '.join(choices)}")
    if choices:
        return value
    try:
        number = kind(value)
    except ValueError:
        raise UsageError(
            f"fault {text!r}: {name} is not a number: {value!r}", hint=f"use a number, such as {name}=1"
        ) from None
    if kind is not str and not 0 <= number < inf:  # also true of NaN
        raise UsageError(f"fault {text!r}: {name} is {value}", hint=f"{name} is a finite number from 0")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """One fault, and the correct finding for it."""

    fault: str
    """The fault as text."""
    kind: str
    """Kind of the correct finding: ``diagnose.findings.Kind``."""
    ranks: tuple[int, ...]
    """Culprits. Empty: no single rank."""
    hosts: tuple[str, ...]
    pp: int | None
    """Pipeline stage that is the culprit."""
    first_step: int
    last_step: int
    """First and last step of the run with the fault."""

    def __str__(self) -> str:
        """The fault in words: ``compute-straggler of rank 5 (slow:rank=5,factor=1.4), steps 0 to 39``."""
        named = f" of pp{self.pp}" if self.pp is not None else ""
        named += f" of rank{'s'[: len(self.ranks) > 1]} {fold_ranks(self.ranks)}" if self.ranks else ""
        return f"{self.kind}{named} ({self.fault}), steps {self.first_step} to {self.last_step}"


def strike(fault: Fault, conditions: Conditions, random: np.random.Generator) -> Truth:
    """Apply ``fault`` to the conditions, and return the truth about it."""
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
    """Clock offset of each host at the begin of the run, and its drift. Empty if all clocks are correct."""
    if not plan.clock_offset_ms and not plan.clock_drift_ppm:
        return {}
    clocks = clocks_of(plan, Draws(noise=plan.noise, seed=plan.seed))
    columns = (clocks.offset_ns - plan.started_ns).tolist(), (clocks.rate * 1e6).tolist()
    rows = zip(clocks.hosts, *columns, strict=True)
    return {"clocks": {host: {"offset_ns": by_ns, "drift_ppm": ppm} for host, by_ns, ppm in rows}}


def check_writable(path: Path) -> None:
    """Check the path of the truth before anything is stored.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        # Without O_NONBLOCK, the open of a FIFO without a reader would block.
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, file_mode()))
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="use --truth with a writable file in an existing folder"
        ) from error


def write_truth(path: Path, plan: SimulatedRun, truth: Sequence[Truth]) -> None:
    """Write the truth to ``path``."""
    path.write_text(json.dumps(truth_object(plan, truth), indent=2) + "\n")
