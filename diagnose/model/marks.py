"""What happened on hosts that is worth a line and no finding: a link that was lost and came back.

Records that never reached the store: where views have holes, and why. It is no finding: the job was not slowed.
"""

import re
from dataclasses import dataclass, replace

from diagnose.detectors.nic_flap import stretched_words
from diagnose.model.outages import Effect
from diagnose.model.view import RunView
from telemetry.records import RECORDS_LOST, SPANS_DROPPED
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks

MOST_LOSSES = 100
"""The newest of an attempt."""
MOST_MARKS = 10_000
"""Of dropped spans. A rank leaves a mark each time that their number doubles."""
_DROPPED = re.compile(r"(\d+) spans? of (.*)", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A hole in what a rank recorded."""

    rank: int
    step: int
    """The first whose records are stored again; of dropped spans, the step of the newest mark."""
    at_ns: int
    """From when on they are missing, by the clock of the rank's host; of dropped spans, when the newest was marked."""
    text: str
    """How many, over how long, and why."""


def load_losses(reader: Reader, run_id: str, attempt: int) -> tuple[Loss, ...]:
    """In order of time."""
    lost = _marked(reader, Marks(run_id=run_id, attempt=attempt, names=(RECORDS_LOST,), limit=MOST_LOSSES))
    dropped = _marked(reader, Marks(run_id=run_id, attempt=attempt, names=(SPANS_DROPPED,), limit=MOST_MARKS))
    every = sorted([*lost, *_added_up(dropped)], key=lambda loss: loss.at_ns)
    return tuple(every[-MOST_LOSSES:])


def _marked(reader: Reader, marks: Marks) -> list[Loss]:
    return [Loss(**{name: row[name] for name in Loss.__slots__}) for row in reader.read(marks).to_pylist()]


def _added_up(dropped: list[Loss]) -> list[Loss]:
    """One loss for each rank, stage and reason: each mark holds the number since the one before."""
    totals: dict[tuple[int, str], int] = {}
    newest: dict[tuple[int, str], Loss] = {}
    for loss in dropped:
        if found := _DROPPED.fullmatch(loss.text):
            key = loss.rank, found[2]
            totals[key] = totals.get(key, 0) + int(found[1])
            newest[key] = loss
    return [replace(one, text=f"{totals[key]} spans of {key[1]}") for key, one in newest.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened, with its time on that host's clock."""

    name: str
    host: str
    device: str
    at_ns: int
    seconds: float
    """How long it lasted; so far, where it does still."""
    count: int
    """How many, where the kernel counted several that nobody saw."""
    lasts: bool
    held_s: float
    """How long the job stood still over it."""
    stretched: tuple[str, ...]
    """Which operations, in words."""


def marks_of(view: RunView) -> tuple[Mark, ...]:
    """The newest losses of link, in order of time."""
    return tuple(_link_mark(view, effect) for effect in view.effects)


def _link_mark(view: RunView, effect: Effect) -> Mark:
    outage = effect.outage
    return Mark(
        name="link-down",
        host=outage.host,
        device=outage.device,
        at_ns=outage.down_ns,
        seconds=outage.seconds(view.fleet.seen_ns),
        count=outage.count,
        lasts=outage.lasts,
        held_s=effect.held_s if effect.hurt else 0.0,
        stretched=tuple(stretched_words([effect])),
    )
