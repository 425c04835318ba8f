"""What belongs to no span: samples as counters of the run, marks as instants of their ranks."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from diagnose.model.host_clocks import ReferenceClock
from diagnose.model.span_columns import Ints
from diagnose.trace.choice import Choice
from diagnose.trace.drawing import Counter, Instant
from diagnose.trace.survey import Survey
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks, Samples

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MAX_MARKS = 1_000_000
"""Of a window, the newest."""


class Told:
    """Samples and marks in the steps of a window, asked for once.

    Samples are of the whole run, marks of the chosen ranks.
    """

    def __init__(self, reader: Reader, choice: Choice, seen: Survey) -> None:
        self._hosts = choice.hosts
        run_id, attempt = choice.run_id, choice.attempt
        first, last = seen.first_step, seen.last_step
        samples = reader.read(Samples(run_id=run_id, attempt=attempt, first_step=first, last_step=last))
        self._samples = samples.filter(pa.array(samples["rank"].to_numpy() < len(self._hosts)))
        marks = reader.read(Marks(run_id=run_id, attempt=attempt, limit=MAX_MARKS, first_step=first, last_step=last))
        self._marks = marks.filter(pa.array(np.isin(marks["rank"].to_numpy(), choice.ranks)))

    def reach(self) -> dict[str, tuple[int, int]]:
        """Of each host the first and the last stamp, by its own clock."""
        reach: dict[str, tuple[int, int]] = {}
        for rows in (self._samples, self._marks):
            for rank, at_ns in zip(rows["rank"].to_pylist(), rows["at_ns"].to_pylist(), strict=True):
                first, last = reach.get(self._hosts[rank], (at_ns, at_ns))
                reach[self._hosts[rank]] = (min(first, at_ns), max(last, at_ns))
        return reach

    def counters(self, clock: ReferenceClock) -> tuple[Counter, ...]:
        """Finite values of each metric."""
        return tuple(
            Counter(metric=metric, at_ns=at_ns[finite], value=value[finite])
            for metric, at_ns, value, finite in self._metrics(clock)
            if finite.any()
        )

    def not_finite(self, clock: ReferenceClock) -> tuple[Instant, ...]:
        """Values that no counter can show: ``loss is nan``."""
        return tuple(
            Instant(at_ns=at, name=f"{metric} is {value}", words={})
            for metric, at_ns, values, finite in self._metrics(clock)
            for at, value in zip(at_ns[~finite].tolist(), values[~finite].tolist(), strict=True)
        )

    def marks(self, clock: ReferenceClock) -> dict[int, tuple[Instant, ...]]:
        """The marks of each rank that has any, in the order of time."""
        found: dict[int, list[Instant]] = defaultdict(list)
        for row in self._marks.to_pylist():
            words = {"step": row["step"]} | ({"text": row["text"]} if row["text"] else {})
            at_ns = int(clock.aligned(np.array([row["at_ns"]]), self._hosts[row["rank"]])[0])
            found[row["rank"]].append(Instant(at_ns=at_ns, name=row["name"], words=words))
        return {rank: tuple(marks) for rank, marks in found.items()}

    def _metrics(self, clock: ReferenceClock) -> Iterator[tuple[str, Ints, Floats, Bools]]:
        """Each metric with its stamps, its values, and which of them are finite."""
        rows = self._samples
        metrics = rows["metric"].to_numpy(zero_copy_only=False)
        value, rank = rows["value"].to_numpy(), rows["rank"].to_numpy()
        at_ns = self._aligned(np.asarray(rows["at_ns"].to_numpy(), dtype=np.int64), rank, clock)
        for metric in dict.fromkeys(metrics.tolist()):
            mine = metrics == metric
            yield metric, at_ns[mine], value[mine], np.isfinite(value[mine])

    def _aligned(self, at_ns: Ints, rank: Ints, clock: ReferenceClock) -> Ints:
        aligned = at_ns.copy()
        for one in np.unique(rank).tolist():
            aligned[rank == one] = clock.aligned(at_ns[rank == one], self._hosts[one])
        return aligned
