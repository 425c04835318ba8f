"""Faults as people write them: a kind and its settings, as the trainer's are.

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

from dataclasses import MISSING, fields
from math import inf
from typing import Any, get_args

from diagnose.simulate.faults import Fault
from diagnose.simulate.host_faults import Collections, Contention, DataStall, Decline, Drift, Flap, SlowLink, SlowWriter
from diagnose.simulate.work_faults import HeavyStage, Loss, Sequences, Slow, Throttle
from telemetry.errors import UsageError

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
        raise UsageError(f"fault {text!r}: {name} is no number: {value!r}", hint=f"such as {name}=1") from None
    if kind is not str and not 0 <= number < inf:  # also true of NaN
        raise UsageError(f"fault {text!r}: {name} is {value}", hint=f"{name} is a finite number from 0")
    return number
