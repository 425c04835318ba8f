"""Events that are not findings: link losses that ended, and lost records.

A report shows both. Lost records explain holes in views, but they did not slow the job.
"""

import re
from dataclasses import dataclass, replace

from diagnose.model.outages import describe_stretched
from diagnose.model.view import RunView
from telemetry.records import RECORDS_LOST, SPANS_DROPPED
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks

MOST_LOSSES = 100
"""Number of losses of an attempt that are returned: the newest ones."""
MOST_MARKS = 10_000
"""Number of marks of dropped spans that are read. A rank writes a mark each time the number of such spans doubles."""
_DROPPED = re.compile(r"(\d+) spans? of (.*)", re.S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records of a rank that are missing in the store."""

    rank: int
    step: int
    """The first step whose records are stored again. For dropped spans: the step of the newest mark."""
    at_ns: int
    """Begin of the loss, by the clock of the rank's host. For dropped spans: the time of the newest mark."""
    text: str
    """How many records, over which time, and why."""


def load_losses(reader: Reader, run_id: str, attempt: int) -> tuple[Loss, ...]:
    """Losses of an attempt, in order of time."""

    def marked(name: str, limit: int) -> list[Loss]:
        rows = reader.read(Marks(run_id=run_id, attempt=attempt, names=(name,), limit=limit)).to_pylist()
        return [Loss(**{name: row[name] for name in Loss.__slots__}) for row in rows]

    every = [*marked(RECORDS_LOST, MOST_LOSSES), *_added_up(marked(SPANS_DROPPED, MOST_MARKS))]
    return tuple(sorted(every, key=lambda loss: loss.at_ns)[-MOST_LOSSES:])


def _added_up(dropped: list[Loss]) -> list[Loss]:
    """One loss for each rank, stage and reason. Each mark holds the number since the mark before."""
    totals: dict[tuple[int, str], int] = {}
    newest: dict[tuple[int, str], Loss] = {}
    for loss in dropped:
        if found := _DROPPED.fullmatch(loss.text):
            key = loss.rank, found[2]
            totals[key] = totals.get(key, 0) + int(found[1])
            newest[key] = loss
    return [replace(loss, text=f"{totals[key]} spans of {key[1]}") for key, loss in newest.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An event on a host, with its time on that host's clock."""

    name: str
    host: str
    device: str
    at_ns: int
    seconds: float
    """Duration; until now if it lasts."""
    count: int
    """Number of events, if the kernel counted several between two samples."""
    lasts: bool
    held_s: float
    """How long the job stalled because of it."""
    stretched: tuple[str, ...]
    """The delayed operations, as text."""


def marks_of(view: RunView) -> tuple[Mark, ...]:
    """The newest link losses, in order of time."""
    return tuple(
        Mark(
            name="link-down",
            host=effect.outage.host,
            device=effect.outage.device,
            at_ns=effect.outage.down_ns,
            seconds=effect.outage.seconds(view.fleet.seen_ns),
            count=effect.outage.count,
            lasts=effect.outage.lasts,
            held_s=effect.held_s if effect.hurt else 0.0,
            stretched=tuple(describe_stretched([effect])),
        )
        for effect in view.effects
    )
