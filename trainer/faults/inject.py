"""Injected faults: parses the text that describes a fault, and writes the truth to a file that no detector reads.

none
slow:rank=5,factor=1.4          forward and backward take 1.4 times the processor (or GPU) time for the same work;
                                also first_step=, last_step=
hang:rank=5,step=8              stops forever in that step; also before=STAGE (default forward-compute),
                                how=wait (asleep), spin (busy), gil (in C, holding the GIL) or stop (SIGSTOP);
                                before=data-load,how=wait: the data never arrives
die:rank=5,step=8               ends in that step; also before=STAGE, how=kill, exit or raise
data-stall:rank=5,step=8,seconds=4
                                the batch of that step is late; also every= (repeat after this number of steps)
skip:rank=5,step=8,stage=tp-all-gather
                                skips the first collective of that stage in that step, and continues
shape:rank=5,step=8,stage=tp-all-gather
                                issues the first collective of that stage with another size than its group; also
                                sizes=half or double
gc:rank=5                       bursts of garbage collection in irregular steps; also every= (steps, on average),
                                objects= (garbage objects in a burst)
nan:rank=5,step=8               the gradients of that rank are NaN in that step
"""

import json
import time
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from telemetry.errors import UsageError
from telemetry.stages import STAGE_BY_LABEL, Stage
from telemetry.topology import Axis, Topology
from trainer.output import replace_output

HINT = (
    "use one of none, slow:rank=5,factor=1.4, hang:rank=5,step=8, die:rank=5,step=8, "
    "data-stall:rank=5,step=8,seconds=4, skip:rank=5,step=8,stage=tp-all-gather, "
    "shape:rank=5,step=8,stage=tp-all-gather, gc:rank=5, nan:rank=5,step=8"
)


LAST_STEP = 2**31
"""Last step of a fault that never ends."""
CollectiveStage = Annotated[Stage, "collective"]
"""A stage in which each span is one collective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A rank whose compute takes ``factor`` times as long as on its peers."""

    rank: int
    factor: float
    first_step: int = 0
    last_step: int = LAST_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A rank that never begins the stage ``before`` in a step. Its process continues to exist."""

    rank: int
    step: int
    before: Stage = Stage.FORWARD_COMPUTE
    how: Literal["wait", "spin", "gil", "stop"] = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Die:
    """A rank whose process ends during a step."""

    rank: int
    step: int
    before: Stage = Stage.FORWARD_COMPUTE
    how: Literal["kill", "exit", "raise"] = "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStall:
    """A rank that waits for its data in one step, and again after every ``every`` steps."""

    rank: int
    step: int
    seconds: float
    every: int = 0
    """Number of steps between two stalls. 0 if there is only one."""

    def is_late(self, step: int) -> bool:
        """Whether the data of ``step`` is late."""
        after = step - self.step
        return after == 0 or (self.every > 0 and after > 0 and after % self.every == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcBursts:
    """A rank that collects garbage at other times than its peers."""

    rank: int
    every: int = 4
    objects: int = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A rank that skips one collective of its group."""

    rank: int
    step: int
    stage: CollectiveStage


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A rank that issues one collective with another size than its group."""

    rank: int
    step: int
    stage: CollectiveStage
    sizes: Literal["half", "double"] = "half"


@dataclass(frozen=True, slots=True, kw_only=True)
class NanGradients:
    """A rank whose gradients are NaN in one step."""

    rank: int
    step: int


Fault = Slow | Hang | Die | DataStall | GcBursts | Skip | Shape | NanGradients
KINDS: dict[str, type[Fault]] = {
    "slow": Slow,
    "hang": Hang,
    "die": Die,
    "data-stall": DataStall,
    "gc": GcBursts,
    "skip": Skip,
    "shape": Shape,
    "nan": NanGradients,
}
KIND_OF: dict[type[Fault], str] = {fault: kind for kind, fault in KINDS.items()}
RANGES: dict[type[Fault], dict[str, tuple[int, int]]] = {
    Slow: {"factor": (1, 1_000_000)},
    Hang: {},
    Die: {},
    DataStall: {"seconds": (0, 1_000_000), "every": (0, LAST_STEP)},
    GcBursts: {"every": (1, LAST_STEP), "objects": (1, 100_000_000)},
    Skip: {},
    Shape: {},
    NanGradients: {},
}
"""The smallest and largest value of each numeric setting of a fault, except ranks and steps."""
BOUNDARIES = (
    *(Stage.DATA_LOAD, Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.FORWARD_SEND, Stage.FORWARD_RECV),
    *(Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER),
    *(Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER, Stage.OPTIMIZER_CLIP, Stage.OPTIMIZER),
)
"""Stages for ``before``."""
COLLECTIVES = (*(Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER),)
"""Stages for ``skip`` and ``shape``."""
AXIS_OF: dict[Stage, Axis] = {
    **dict.fromkeys((Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.BACKWARD_SEND, Stage.BACKWARD_RECV), "pp"),
    **dict.fromkeys((Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER), "dp"),
    **dict.fromkeys((Stage.TP_ALL_GATHER, Stage.TP_REDUCE_SCATTER), "tp"),
}
"""The axis that must be larger than 1 for a stage to occur. Other stages always occur."""


def parse_fault(spec: str, topology: Topology, *, num_steps: int) -> Fault | None:
    """The fault that ``spec`` describes; None if ``spec`` is ``none``.

    Raises:
        UsageError: the fault is unknown; a setting is missing, unknown, not a number or out of range; or the run does
            not have the rank or step.
    """
    if spec == "none":
        return None
    kind, _, settings = spec.partition(":")
    if kind not in KINDS:
        raise UsageError(f"unknown fault {kind!r}", hint=HINT)
    fault = KINDS[kind](**_values(KINDS[kind], settings, spec))
    if not 0 <= fault.rank < topology.world_size:
        raise UsageError(
            f"fault {spec!r}: no rank {fault.rank}", hint=f"ranks of this grid are 0 to {topology.world_size - 1}"
        )
    _check_steps(fault, spec, num_steps)
    _check_ranges(fault, spec)
    setting, axis = _axis_of(fault)
    if axis and len(topology.group(fault.rank, along=axis)) == 1:
        raise UsageError(
            f"fault {spec!r}: this stage does not occur, because {axis} is 1",
            hint=f"use another {setting}=, or a larger {axis}",
        )
    return fault


def _check_steps(fault: Fault, spec: str, num_steps: int) -> None:
    """Refuse a fault outside the steps of the run."""
    if isinstance(fault, GcBursts):
        return
    name = "first_step" if isinstance(fault, Slow) else "step"
    step = getattr(fault, name)
    if not 0 <= step < num_steps:
        raise UsageError(f"fault {spec!r}: no step {step}", hint=f"steps of this run are 0 to {num_steps - 1}")
    if isinstance(fault, Slow) and fault.last_step < fault.first_step:
        raise UsageError(
            f"fault {spec!r}: last_step {fault.last_step} is smaller than first_step {fault.first_step}",
            hint="swap the two numbers",
        )


def _check_ranges(fault: Fault, spec: str) -> None:
    for name, (least, most) in RANGES[type(fault)].items():
        value = getattr(fault, name)
        if not least <= value <= most:  # also true of NaN
            raise UsageError(f"fault {spec!r}: {name} is {value}", hint=f"{name} is a number from {least} to {most:,}")


def stage_of(fault: Fault | None) -> Stage | None:
    """The stage at which a fault ends or stops its rank, or alters a collective; None for other faults."""
    if isinstance(fault, Hang | Die):
        return fault.before
    return fault.stage if isinstance(fault, Skip | Shape) else None


def _axis_of(fault: Fault) -> tuple[str, Axis | None]:
    """The setting that names a stage, and the axis that must be larger than 1 for this stage."""
    stage = stage_of(fault)
    return "stage" if isinstance(fault, Skip | Shape) else "before", None if stage is None else AXIS_OF.get(stage)


def _values(kind: type[Fault], settings: str, spec: str) -> dict[str, Any]:
    given = dict(pair.partition("=")[::2] for pair in settings.split(",") if pair)
    known = {field.name: field for field in fields(kind)}
    for name in given:
        if name not in known:
            raise UsageError(f"fault {spec!r}: unknown setting {name!r}", hint=f"known: {', '.join(known)}")
    for name, field in known.items():
        if name not in given and field.default is MISSING:
            raise UsageError(f"fault {spec!r}: {name}= is missing", hint=HINT)
    return {name: _value(known[name].type, text, name, spec) for name, text in given.items()}


def _value(kind: Any, text: str, name: str, spec: str) -> Any:
    stages = {Stage: BOUNDARIES, CollectiveStage: COLLECTIVES}.get(kind, ())
    choices = [stage.label for stage in stages] or get_args(kind)
    if choices and text not in choices:
        raise UsageError(f"fault {spec!r}: {name} is {text!r}", hint=f"{name} is one of {', '.join(choices)}")
    if choices:
        return STAGE_BY_LABEL[text] if stages else text
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"fault {spec!r}: {name} is not a number: {text!r}", hint=HINT) from None


def write_truth(
    path: Path, fault: Fault | None, *, host: str, num_steps: int, topology: Topology | None = None
) -> None:
    """Write the truth about a run, so that a verdict can be checked later. It contains the affected ``group`` if the
    fault affects the communication of a group. If the fault never ends, its last step is the last step of the run."""
    truth: dict[str, Any] = {"kind": "none", "num_steps": num_steps}
    if fault is not None:
        settings = {name: _plain(value) for name, value in asdict(fault).items()}
        if "last_step" in settings:
            settings["last_step"] = min(settings["last_step"], num_steps - 1)
        truth = truth | settings | {"kind": KIND_OF[type(fault)], "host": host}
        _, axis = _axis_of(fault)
        if axis and topology:
            truth["group"] = topology.group(fault.rank, along=axis)
    replace_output(path, json.dumps(truth, indent=2) + "\n")


FIRED_NAME = "fired.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFile:
    """The file in which the rank of a fault writes when the fault begins. Detectors do not read it. Nothing is written
    to the output of the rank, because the output is evidence."""

    path: Path
    rank: int

    def record_start(self, step: int, stage: Stage) -> None:
        """Write the time, the step and the stage. Call it directly before the fault."""
        start = {"rank": self.rank, "step": step, "stage": stage.label, "at_ns": time.time_ns()}
        replace_output(self.path, json.dumps(start) + "\n")


def _plain(value: Any) -> Any:
    return value.label if isinstance(value, Stage) else value
