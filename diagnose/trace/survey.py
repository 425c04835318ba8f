"""The first reading of a window: arrows between operations, and the time range of each host. Some steps at a time.

Arrows lead from each send to its receive, and from the member that entered a collective last to the others.

    send   |--->                      last    |===|           the members of a collective wait for the last one: the
    recv |-----v-|                    other |-^===|           arrow shows which one it was

If the two sides have different numbers of operations in a step, a record is missing and their arrows are not drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Ints, SpanColumns, columns_of
from diagnose.model.partners import COLLECTIVES, TRANSFERS, operation_places, whole_operations
from diagnose.trace.choice import Choice
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Spans
from telemetry.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrows:
    """Rows of the spans that each arrow leads from and to, [arrows]."""

    source: Ints
    target: Ints

    def __len__(self) -> int:
        return len(self.source)


def transfers(spans: SpanColumns, topology: Topology) -> Arrows:
    """Arrows from each send to its receive. Without a recorded peer, it is the neighbour along the pipeline."""
    pairs = whole_operations(spans, operation_places(spans, topology, TRANSFERS))
    return _concatenated([Arrows(source=rows[:, 0], target=rows[:, 1]) for rows in pairs])


def collectives(spans: SpanColumns, topology: Topology, hosts: Sequence[str]) -> Arrows:
    """Arrows from the member that entered last to each other one, for groups with all members in ``spans``.

    The last member has the latest start if all members share a host, else the shortest duration: all members end
    together. Times of different hosts are not compared.

    Args:
        hosts: host of each rank.
    """
    host_number = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    places = [host_number[host] if host else -1 - rank for rank, host in enumerate(hosts)]
    place_of_host = np.array(places, dtype=np.int64)
    met = whole_operations(spans, operation_places(spans, topology, COLLECTIVES))
    return _concatenated([_from_the_last(spans, members, place_of_host) for members in met])


def _concatenated(parts: list[Arrows]) -> Arrows:
    nothing = np.zeros(0, dtype=np.int64)
    return Arrows(
        source=np.concatenate([nothing, *(one.source for one in parts)]),
        target=np.concatenate([nothing, *(one.target for one in parts)]),
    )


def _from_the_last(spans: SpanColumns, members: Ints, place_of_host: Ints) -> Arrows:
    host = place_of_host[spans.rank[members]]
    same_host = (host == host[:, :1]).all(axis=1)
    late = np.where(same_host[:, None], spans.start_ns[members], -spans.duration_ns[members])
    last = late.argmax(axis=1)
    others = np.ones(members.shape, dtype=np.bool_)
    others[np.arange(len(members)), last] = False
    source = members[np.arange(len(members)), last]
    return Arrows(source=np.repeat(source, members.shape[1] - 1), target=members[others])


SPANS_AT_ONCE = 200_000
"""Approximate number of spans that one query returns."""
NO_LIMIT = 2**31


def step_by_step(reader: Reader, choice: Choice) -> Iterator[SpanColumns]:
    """The spans of all chosen ranks, some steps at a time, ordered by rank; never empty."""
    num_steps = choice.newest_step - choice.first_step + 1
    at_once = max(1, SPANS_AT_ONCE * num_steps // choice.num_spans)
    for first in range(choice.first_step, choice.newest_step + 1, at_once):
        last = first + at_once - 1
        spans = _read(reader, choice, first, last if last < choice.newest_step else choice.last_step, choice.ranks)
        if len(spans):
            yield spans


def rank_by_rank(reader: Reader, choice: Choice) -> Iterator[SpanColumns]:
    """The spans of one rank after another in the whole window, in order of ranks; never empty."""
    for ranks in _batches(choice):
        spans = _read(reader, choice, choice.first_step, choice.last_step, ranks)
        bounds = np.flatnonzero(np.diff(spans.rank, prepend=-1, append=-1)).tolist()
        for first, stop in pairwise(bounds):
            yield spans.where(slice(first, stop))


def _batches(choice: Choice) -> Iterator[tuple[int, ...]]:
    batch: list[int] = []
    num_spans = 0
    for rank, spans in choice.spans_of_rank.items():
        if batch and num_spans + spans > SPANS_AT_ONCE:
            yield tuple(batch)
            batch, num_spans = [], 0
        batch.append(rank)
        num_spans += spans
    if batch:
        yield tuple(batch)


def _read(reader: Reader, choice: Choice, first_step: int, last_step: int, ranks: tuple[int, ...]) -> SpanColumns:
    table = reader.read(
        Spans(
            run_id=choice.run_id,
            attempt=choice.attempt,
            first_step=first_step,
            last_step=last_step,
            ranks=ranks if len(ranks) < choice.topology.world_size else (),
            limit=NO_LIMIT,
        )
    )
    spans = columns_of(table)
    return spans.where(spans.rank < choice.topology.world_size)


USUAL_STEP_NS = 1e9
"""Assumed step time of a run that records no steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Both ends of each arrow, [arrows]: the span, and its raw time by the clock of its host."""

    source_rank: Ints
    source_seq: Ints
    source_start_ns: Ints
    target_rank: Ints
    target_seq: Ints
    target_start_ns: Ints
    target_end_ns: Ints
    transfer: Ints
    """1 for an arrow from a send to its receive, 0 for an arrow within a collective."""

    def __len__(self) -> int:
        return len(self.source_rank)

    def where(self, chosen: npt.NDArray[np.bool_] | Ints) -> "Ends":
        return Ends(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Facts about a window that are needed before its first span is written."""

    first_step: int
    last_step: int
    """``first_step`` and ``last_step``: the first and the last step with spans."""
    step_ns: float
    """Approximate step time."""
    reach: dict[str, tuple[int, int]]
    """Host -> its first and last time, by its own clock."""
    ends: Ends


def survey(reader: Reader, choice: Choice) -> Survey:
    """Read the window once. Only its arrows are kept, about sixty bytes each."""
    steps: set[int] = set()
    reach: dict[str, tuple[int, int]] = {}
    step_ns: list[float] = []
    found: list[Ends] = []
    for spans in step_by_step(reader, choice):
        steps.update(np.unique(spans.step).tolist())
        _widen(reach, spans, choice.hosts)
        step_ns += [float(np.median(lasted))] if len(lasted := spans.duration_ns[spans.stage == Stage.STEP]) else []
        found.append(_ends(spans, transfers(spans, choice.topology), transfer=1))
        found.append(_ends(spans, collectives(spans, choice.topology, choice.hosts), transfer=0))
    return Survey(
        first_step=min(steps),
        last_step=max(steps),
        step_ns=float(np.median(step_ns)) if step_ns else USUAL_STEP_NS,
        reach=reach,
        ends=_joined(found),
    )


def _widen(reach: dict[str, tuple[int, int]], spans: SpanColumns, hosts: tuple[str, ...]) -> None:
    """Extend the first and last times of hosts in ``reach`` by those of ``spans``, which are ordered by rank."""
    ranks, first_rows = np.unique(spans.rank, return_index=True)
    firsts = np.minimum.reduceat(spans.start_ns, first_rows).tolist()
    lasts = np.maximum.reduceat(spans.end_ns, first_rows).tolist()
    for rank, first, last in zip(ranks.tolist(), firsts, lasts, strict=True):
        before = reach.get(hosts[rank], (first, last))
        reach[hosts[rank]] = (min(first, before[0]), max(last, before[1]))


def _ends(spans: SpanColumns, arrows: Arrows, *, transfer: int) -> Ends:
    source, target = arrows.source, arrows.target
    return Ends(
        source_rank=spans.rank[source],
        source_seq=spans.seq[source],
        source_start_ns=spans.start_ns[source],
        target_rank=spans.rank[target],
        target_seq=spans.seq[target],
        target_start_ns=spans.start_ns[target],
        target_end_ns=spans.end_ns[target],
        transfer=np.full(len(arrows), transfer, dtype=np.int64),
    )


def _joined(parts: list[Ends]) -> Ends:
    return Ends(**{field.name: np.concatenate([getattr(one, field.name) for one in parts]) for field in fields(Ends)})
