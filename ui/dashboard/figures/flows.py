"""Which spans are one operation, and how long each of them waited for the others.

rank 0   |-- all-gather 7 ----|         one collective: the same stage, group and number
rank 1          |= all-gather 7 =|      rank 0 waited until rank 1 came: the pale part
         ^^^^^^^

rank 1   |s|                            one transfer: sender, receiver and number, or microbatch where none was counted
rank 3 |r---|
"""

import numpy as np
import numpy.typing as npt

from diagnose.model.partners import NOBODY, NOT_NUMBERED, alike, meeting_places, recorded_numbers
from telemetry.topology import Topology
from ui.dashboard.records import Ints, SpanColumns

NO_FLOW = 0


def flows(spans: SpanColumns, topology: Topology) -> Ints:
    """The operation of each span, numbered from 1; ``NO_FLOW`` where it is nobody's partner among ``spans``."""
    place, number = meeting_places(spans, topology).place, recorded_numbers(spans)
    rows = np.flatnonzero((place != NOBODY) & (number != NOT_NUMBERED))
    operation = alike(place[rows], number[rows])
    shared = np.bincount(operation, minlength=1)[operation] > 1
    found = np.full(len(spans), NO_FLOW, dtype=np.int64)
    found[rows[shared]] = np.unique(operation[shared], return_inverse=True)[1] + 1
    return found


def waited_ns(spans: SpanColumns, flow: Ints, clock: Ints, bound_ns: int) -> Ints:
    """How long each span waited for the last of its partners to come; 0 where that is not known for sure.

    ``clock``: of each span, which clock its stamps are of; 0: aligned with others within ``bound_ns``. A partner that
    came after a span had ended was not waited for.
    """
    waited = np.zeros(len(spans), dtype=np.int64)
    members = np.flatnonzero(flow != NO_FLOW)
    if not len(members):
        return waited
    of, start = flow[members], spans.start_ns[members]
    latest = np.full(int(of.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, of, start)
    wait = latest[of] - start
    known = (wait > bound_ns) & (wait < spans.duration_ns[members]) & _on_one_clock(of, clock[members])
    waited[members] = np.where(known, wait, 0)
    return waited


def _on_one_clock(of: Ints, clock: Ints) -> npt.NDArray[np.bool_]:
    """Of each member: whether all members of its operation have stamps of the same clock."""
    lowest = np.full(int(of.max()) + 1, np.iinfo(np.int64).max)
    highest = np.full(len(lowest), np.iinfo(np.int64).min)
    np.minimum.at(lowest, of, clock)
    np.maximum.at(highest, of, clock)
    return np.asarray(lowest[of] == highest[of])
