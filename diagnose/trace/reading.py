"""Spans of a window, as many at once as make one good answer: by steps, then by ranks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from diagnose.model.span_columns import SpanColumns, columns_of
from diagnose.trace.choice import Choice
from telemetry.stores.queries import Spans
from telemetry.stores.reader import Reader

SPANS_AT_ONCE = 200_000
"""What one question should find, about."""
NO_LIMIT = 2**31


def step_by_step(reader: Reader, choice: Choice) -> Iterator[SpanColumns]:
    """All chosen ranks in some steps, ordered by rank; never nothing."""
    num_steps = choice.newest_step - choice.first_step + 1
    at_once = max(1, SPANS_AT_ONCE * num_steps // choice.num_spans)
    for first in range(choice.first_step, choice.newest_step + 1, at_once):
        last = first + at_once - 1
        spans = _read(reader, choice, first, last if last < choice.newest_step else choice.last_step, choice.ranks)
        if len(spans):
            yield spans


def rank_by_rank(reader: Reader, choice: Choice) -> Iterator[SpanColumns]:
    """The whole window of one rank after another, ascending; never nothing."""
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
