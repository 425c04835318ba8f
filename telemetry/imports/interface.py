"""Result of every importer: a whole run, checked, in memory.

    paths --importer--> ImportedRun --write_run--> the store that --store names

Nothing is stored before all files are read, so a broken file leaves no partial run.

Spans are numbered in the order in which they are stored:

    rank 0   operations by start   0 1 2 3 ... n-1      steps   n n+1 ...
    rank 1   operations by start   0 1 2 ...            steps   ...

A rank's steps have its highest numbers, so they are written after all operations. Lists show a run by its steps and
ranks, so a run that is only half written does not appear.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.run_names import checked_run_name, usable_run_name
from telemetry.stages import Stage, Stream
from telemetry.tables import RANKS, SPANS
from telemetry.topology import Topology

DEFAULTS: Mapping[str, int] = {
    "microbatch": -1,
    "chunk": -1,
    "peer": -1,
    "op_seq": 0,
    "cpu_ns": -1,
    "issue_ns": 0,
    "size_bytes": 0,
    "clock": 0,
}
"""Value of a column that the source does not have."""

STREAM_OF_STAGE = np.full(256, int(Stream.HOST), dtype=np.uint8)
for _stage in Stage:
    STREAM_OF_STAGE[int(_stage)] = int(_stage.stream)


def numbered(columns: Mapping[str, npt.NDArray[Any]], ties: Sequence[npt.NDArray[Any]] = ()) -> pa.Table:
    """Columns of ``telemetry.tables.SPANS`` as a table, ordered by rank and numbered.

    Args:
        columns: rank, stage, step, start_ns, duration_ns, and any others but ``seq``. If ``stream`` is left out, the
            stream of the stage is used. All columns have the same length.
        ties: sort keys for spans of a rank that start together, the first key first. Equal spans keep their order.
    """
    is_step = columns["stage"] == int(Stage.STEP)
    order = np.lexsort((*reversed(ties), columns["start_ns"], is_step, columns["rank"]))
    rank = columns["rank"][order]
    first = np.flatnonzero(np.concatenate([np.ones(min(len(rank), 1), dtype=bool), rank[1:] != rank[:-1]]))
    seq = np.arange(len(rank)) - np.repeat(first, np.diff(first, append=len(rank)))
    made = {name: pa.array(values[order]) for name, values in columns.items()}
    made["seq"] = pa.array(seq)
    made.setdefault("stream", pa.array(STREAM_OF_STAGE[columns["stage"][order]]))
    for name, value in DEFAULTS.items():
        made.setdefault(name, pa.repeat(pa.scalar(value, SPANS.field(name).type), len(rank)))
    return pa.Table.from_arrays([made[field.name].cast(field.type) for field in SPANS], schema=SPANS)


DEGREES_HINT = "give the layout of the ranks: --mesh pp=2,dp_shard=4,tp=8, or --dp N --pp N --tp N"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of the user, without the paths."""

    name: str | None = None
    """Name of the run. If None, it comes from the files."""
    meta: Path | None = None
    """A file with the layout of the job. If None, the file in the folder of the trace is used."""
    dp: int | None = None
    pp: int | None = None
    tp: int | None = None
    mesh: Topology | None = None
    """The complete mesh, instead of the degrees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """One attempt of a run, ready to be stored.

    ``spans`` are sorted as by :func:`telemetry.imports.interface.numbered`: by rank, then ``seq``, with a rank's
    ``step`` spans last. No value is missing, and no rank lies outside of the topology.
    """

    run_id: str
    attempt: int = 0
    topology: Topology
    hosts: Mapping[int, str]
    """Rank -> its host, for the ranks in the files. "" if the files do not contain it."""
    started_ns: int
    """Wall clock, nanoseconds since the epoch; the same whenever the same files are imported."""
    meta: Mapping[str, str]
    meta_of_ranks: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Rank -> its own ``meta``. Other ranks have the common ``meta``."""
    spans: pa.Table

    @property
    def num_steps(self) -> int:
        is_step = pc.equal(self.spans["stage"], pa.scalar(int(Stage.STEP), pa.uint8()))
        return int(pc.count_distinct(pc.filter(self.spans["step"], is_step)).as_py())

    def ranks(self) -> pa.Table:
        """Rows of the ``ranks`` table."""
        num = len(self.hosts)
        numbers = sorted(self.hosts)
        constant = {
            "pid": 0,
            "dp_size": self.topology.dp,
            "pp_size": self.topology.pp,
            "tp_size": self.topology.tp,
            "mesh": str(self.topology),
            "opened_ns": self.started_ns,
        }
        columns = {name: pa.repeat(pa.scalar(value, RANKS.field(name).type), num) for name, value in constant.items()}
        columns["rank"] = pa.array(numbers, pa.uint32())
        columns["local_rank"] = pa.array(list(self._local_ranks(numbers)), RANKS.field("local_rank").type)
        columns["host"] = pa.array([self.hosts[rank] for rank in numbers], pa.string())
        words = [dict(self.meta_of_ranks.get(rank, self.meta)) for rank in numbers]
        columns["meta"] = pa.array([json.dumps(each, sort_keys=True) for each in words], pa.string())
        columns["started_ns"] = pa.array(self._started_ns(numbers), RANKS.field("started_ns").type)
        return pa.Table.from_arrays([columns[name] for name in RANKS.names], schema=RANKS)

    def _started_ns(self, numbers: Sequence[int]) -> list[int]:
        """When each rank began its first span, by its own clock, as live ranks report it."""
        first = self.spans.group_by("rank").aggregate([("start_ns", "min")])
        known = dict(zip(first["rank"].to_pylist(), first["start_ns_min"].to_pylist(), strict=True))
        return [known.get(rank, self.started_ns) for rank in numbers]

    def _local_ranks(self, numbers: Sequence[int]) -> Iterator[int]:
        """Local ranks, numbered as by launchers: by rank, from 0 on each host. 0 if the host is not known."""
        on_host: Counter[str] = Counter()
        for rank in numbers:
            host = self.hosts[rank]
            yield on_host[host]
            on_host[host] += bool(host)


def imported_name(options: ImportOptions, found: str) -> str:
    """The name of the run: the name in ``options``, otherwise a valid name made from ``found`` in the files.

    Raises:
        UsageError: the name in ``options`` cannot name a run.
    """
    return checked_run_name(options.name.strip()) if options.name else usable_run_name(found)


class Importer(Protocol):
    """Reads files of one format."""

    def __call__(self, paths: Sequence[Path], options: ImportOptions) -> ImportedRun:
        """The run that ``paths`` hold.

        Raises:
            UsageError: the paths or options are invalid.
            UnreadableError: a file is damaged, or has another format.
        """


def check_sound(run: ImportedRun) -> None:
    """Assert the guarantees of :class:`ImportedRun`: an importer that breaks them is a defect."""
    spans = run.spans
    assert spans.schema.equals(SPANS, check_metadata=False), spans.schema
    assert not any(column.null_count for column in spans.columns), "missing values"
    assert run.hosts, "no rank"
    rank, seq = spans["rank"].to_numpy(), spans["seq"].to_numpy()
    assert all(0 <= named < run.topology.world_size for named in run.hosts), "a rank beyond the topology"
    assert set(np.unique(rank).tolist()) <= set(run.hosts), "spans of a rank that is not in the list of ranks"
    is_step = spans["stage"].to_numpy() == int(Stage.STEP)
    same = rank[1:] == rank[:-1]
    assert bool((rank[1:] >= rank[:-1]).all()), "not ordered by rank"
    assert bool((seq[1:] > seq[:-1])[same].all()), "not ordered by number"
    assert bool((is_step[1:] >= is_step[:-1])[same].all()), "an operation after the steps of its rank"
