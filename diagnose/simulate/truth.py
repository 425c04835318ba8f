"""What was done to a simulated run: for whoever checks a verdict afterwards, never into the store.

Faults as people write them: a kind and its settings, as the trainer's are.

slow:rank=5,factor=1.4            compute of a rank takes so many times as long; or of all of host=gpu-003
throttle:rank=5,factor=1.4        clocks of its GPU held down; shape=waves (period= steps) or ramp; reason=heat,
                                  power or brake
stage:pp=3,factor=1.3             a pipeline stage has more work than the others
sequences:spread=0.3              microbatches of unequal length; shape=lognormal or heavy
gc                                garbage collected inside forwards, at irregular steps; also every= (steps), ms=,
                                  share= (of the ranks), rank=, host=
link:host=gpu-003,factor=3        a slow network; or of rank=5; axis=all, dp or pp
flap:host=gpu-003,seconds=4       a network card without a link for seconds; or of rank=5; times= in the run
data-stall:seconds=2              data that comes late; share= of the steps, rank=, host=
drift:ms=100                      gradients launched ever later; rank=, host=
contention:host=gpu-003,factor=2  cores that others take (--device cpu)
decline:factor=2                  communication of all that grows
loss:step=30,how=nan              a loss that is no number, or how=jump by size=
checkpoint:rank=5,factor=4        a slow writer (--checkpoint-every)

All but loss also take first_step= and last_step=.
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
from diagnose.simulate.faults import Fault, HeavyStage, Loss, Sequences, Slow, Throttle
from diagnose.simulate.host_faults import Collections, Contention, DataStall, Decline, Drift, Flap, SlowLink, SlowWriter
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
}
KIND_OF: dict[type[Any], str] = {fault: kind for kind, fault in KINDS.items()}
HINT = f"kinds are {', '.join(KINDS)}; such as slow:rank=5,factor=1.4"


def parse_fault(text: str) -> Fault:
    """The fault that ``text`` means. Whether its place exists is for the run to say.

    Raises:
        UsageError: no such kind, or a setting that is missing, unknown, of the wrong type, negative or not finite.
    """
    kind, _, settings = text.partition(":")
    if kind not in KINDS:
        raise UsageError(f"no fault {kind!r}", hint=HINT)
    known = {field.name: field for field in fields(KINDS[kind])}
    given = dict(pair.partition("=")[::2] for pair in settings.split(",") if pair)
    for name in given:
        if name not in known:
            raise UsageError(f"fault {text!r}: no setting {name!r}", hint=f"it has {', '.join(known)}")
    for name, field in known.items():
        if name not in given and field.default is MISSING:
            raise UsageError(f"fault {text!r}: {name}= is missing", hint=f"it has {', '.join(known)}")
    fault: Fault = KINDS[kind](**{name: _value(known[name].type, value, name, text) for name, value in given.items()})
    return fault


def fault_text(fault: Fault) -> str:
    """The text that means ``fault``: what differs from its defaults."""
    told = [(field, getattr(fault, field.name)) for field in fields(fault)]  # type: ignore[arg-type]
    settings = ",".join(f"{field.name}={_plain(value)}" for field, value in told if value != field.default)
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
        raise UsageError(f"fault {text!r}: {name} is not a number: {value!r}", hint=f"such as {name}=1") from None
    if kind is not str and not 0 <= number < inf:  # also true of NaN
        raise UsageError(f"fault {text!r}: {name} is {value}", hint=f"{name} is a finite number from 0")
    return number


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
        raise UsageError(f"{path}: {error.strerror}", hint="use --truth with a writable file") from error


def write_truth(path: Path, plan: SimulatedRun, truth: Sequence[Truth]) -> None:
    """Put the truth down at ``path``."""
    path.write_text(json.dumps(truth_object(plan, truth), indent=2) + "\n")
