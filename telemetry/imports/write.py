"""Writes a run that is complete in memory to the store that ``--store`` names: a collector, or another store.

    stored first:   operations   ->   steps   ->   ranks
    the run is:     in no list        in lists     complete

If an import was killed, run it again. It then skips the rows that are stored already, by their numbers, as a collector
does. Stored rows are first compared with the file, so parts of two different files are never mixed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.errors import TakenNameError
from telemetry.imports.interface import ImportedRun, check_sound
from telemetry.stages import Stage
from telemetry.stores.address import checked_readable
from telemetry.stores.interface import Reader, Store, StoreReader
from telemetry.stores.queries import LAST_STEP, HighWater, Runs, Spans, StageCounts
from telemetry.tables import owned
from telemetry.wire.codec import labelled

POSTED_ROWS = 2**18
"""Rows of a batch to a collector: 20 MB, well below the limit of a request."""
INSERTED_ROWS = 2**22
"""Rows of an insert into a store that this process has open. Such an insert takes 400 MB of memory."""
KEPT_WINDOWS = 64
"""If a run is stored without a collector, clocks are estimated in this number of newest windows."""
NAME_HINT = "give the run a unique name: --name NAME; `rankscope runs` lists existing names"


class Target(Protocol):
    """Destination of a run. May block.

    Raises:
        UnreachableError: no answer; the rows may or may not be stored.
    """

    max_rows: int
    """Largest number of rows of one :meth:`put`."""
    reader: Reader

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        """Store ``rows`` as one atomic block. They are stored when this returns."""

    def keep_clocks(self, run: ImportedRun) -> None:
        """Estimate the clocks of the hosts of a complete run, unless the target does this itself."""


def write_run(run: ImportedRun, address: str) -> None:
    """Store ``run`` at ``address``: a collector (``http://``, ``https://``) or a store, which is created if missing.

    Raises:
        TakenNameError: another run with this name is stored, completely or in part.
        UnreachableError: no answer, or the connection broke. Repeating the call completes the run.
    """
    check_sound(run)
    with open_target(address) as target:
        put_run(run, target)
        target.keep_clocks(run)


def put_run(run: ImportedRun, target: Target) -> None:
    """Like :func:`write_run`, for an open target."""
    _refuse_taken(run, target.reader)
    spans = _not_stored(run, target.reader)
    for is_step in (False, True):
        for block in _blocks(spans, target.max_rows):
            chosen = pc.equal(pc.equal(block["stage"], pa.scalar(int(Stage.STEP), pa.uint8())), is_step)
            if pc.any(chosen).as_py():
                target.put("spans", block.filter(chosen), run)
    target.put("ranks", run.ranks(), run)


@contextmanager
def open_target(address: str) -> Iterator[Target]:
    """The collector or store at ``address``.

    Raises:
        UsageError: the form of the address is unknown.
        UnreachableError: no answer.
    """
    if checked_readable(address).startswith(("http://", "https://")):
        from telemetry.wire.client import CollectorClient  # noqa: PLC0415 - HTTP is for collectors alone

        with CollectorClient(address) as client:
            yield _CollectorTarget(client)
        return
    from telemetry.stores.open import open_store  # noqa: PLC0415 - engines are optional extras

    store = open_store(address)
    try:
        yield StoreTarget(store)
    finally:
        store.close()


class Poster(Reader, Protocol):
    """A reader that also accepts batches: ``telemetry.wire.client.CollectorClient``."""

    def post(self, table: str, rows: pa.Table) -> object: ...


class _CollectorTarget:
    def __init__(self, client: Poster) -> None:
        self.max_rows = POSTED_ROWS
        self.reader: Reader = client
        self._client = client

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        self._client.post(table, labelled(rows, run.run_id, run.attempt))

    def keep_clocks(self, run: ImportedRun) -> None:
        """Do nothing: the collector estimates clocks itself."""


class StoreTarget:
    """A store that is open in this process."""

    def __init__(self, store: Store) -> None:
        self.max_rows = INSERTED_ROWS
        self.reader: Reader = StoreReader(store)
        self._store = store

    def put(self, table: str, rows: pa.Table, run: ImportedRun) -> None:
        self._store.insert(table, owned(rows, run.run_id, run.attempt))

    def keep_clocks(self, run: ImportedRun) -> None:
        """Estimate clocks as a collector does."""
        from telemetry.clocks.windows import estimate_newest  # noqa: PLC0415 - takes long to load

        owner, last_step = (run.run_id, run.attempt), pc.max(run.spans["step"]).as_py()
        for window in estimate_newest(self.reader, *owner, last_step or 0, most=KEPT_WINDOWS):
            self._store.insert("host_clocks", owned(window.rows(time.time_ns()), *owner))


def _blocks(rows: pa.Table, max_rows: int) -> Iterator[pa.Table]:
    for first in range(0, rows.num_rows, max_rows):
        yield rows.slice(first, max_rows)


def _refuse_taken(run: ImportedRun, reader: Reader) -> None:
    """Raise TakenNameError if another run has the name. Steps without ranks are from a killed import, and no run."""
    for row in reader.read(Runs(run_ids=(run.run_id,))).to_pylist():
        if row["num_ranks"] or row["attempt"] != run.attempt:
            raise TakenNameError(f"a run {run.run_id!r} is already stored", hint=NAME_HINT)


def _not_stored(run: ImportedRun, reader: Reader) -> pa.Table:
    """The spans that an earlier import of the same file has not stored."""
    found = reader.read(HighWater(table="spans", run_id=run.run_id, attempt=run.attempt))
    if not found.num_rows:
        return run.spans
    marks = np.zeros(run.topology.world_size, dtype=np.uint64)
    ranks = found["rank"].to_numpy()
    if int(ranks.max()) >= len(marks):
        raise _another(run)
    np.maximum.at(marks, ranks, found["next_seq"].to_numpy())
    stored = run.spans["seq"].to_numpy() < marks[run.spans["rank"].to_numpy()]
    if not _is_what_is_stored(run, run.spans.filter(pa.array(stored)), reader):
        raise _another(run)
    return run.spans.filter(pa.array(~stored))


def _is_what_is_stored(run: ImportedRun, spans: pa.Table, reader: Reader) -> bool:
    """Whether the store holds exactly ``spans`` of the run. Compares their number and total time in each stage, and the
    start of the first span."""
    counts = reader.read(StageCounts(run_id=run.run_id, attempt=run.attempt))
    there = zip(*(counts[name].to_pylist() for name in ("stage", "spans", "duration_ns")), strict=True)
    if sorted(there) != _stage_counts(spans) or not spans.num_rows:
        return False
    rank = spans["rank"][0].as_py()
    first = reader.read(
        Spans(run_id=run.run_id, attempt=run.attempt, first_step=0, last_step=LAST_STEP, ranks=(rank,), limit=1)
    )
    start = spans["start_ns"].to_numpy()[spans["rank"].to_numpy() == rank]
    return bool(first["start_ns"][0].as_py() == start.min())


def _stage_counts(spans: pa.Table) -> list[tuple[int, int, int]]:
    stage: npt.NDArray[np.uint8] = spans["stage"].to_numpy()
    duration = spans["duration_ns"].to_numpy()
    return [(int(code), int((stage == code).sum()), int(duration[stage == code].sum())) for code in np.unique(stage)]


def _another(run: ImportedRun) -> TakenNameError:
    return TakenNameError(f"part of another import is already stored as {run.run_id!r}", hint=NAME_HINT)
