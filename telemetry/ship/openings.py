"""One name, one job: refuses ranks that another job of the same name has stored before.

Records are numbered from 0 in every fresh folder. Under a name that is taken they would pass for records that are
stored already, and be dropped; so a rank whose folder was opened at another time is turned away before it ships any.
"""

from collections.abc import Iterable

from telemetry.errors import TakenNameError
from telemetry.ship.wire import Batch
from telemetry.stores.queries import Ranks
from telemetry.stores.reader import Reader

Owner = tuple[str, int]


def find_taken(reader: Reader, batches: Iterable[Batch]) -> list[TakenNameError | None]:
    """For each batch of ``ranks``, in order: why it must not be stored, or None.

    Raises:
        UnreachableError: the store does not answer.
    """
    known: dict[Owner, dict[int, int]] = {}
    found: list[TakenNameError | None] = []
    for batch in batches:
        owner = batch.run_id, batch.attempt
        if owner not in known:
            known[owner] = _opened(reader, *owner)
        found.append(_refusal(batch, known[owner]))
    return found


def _opened(reader: Reader, run_id: str, attempt: int) -> dict[int, int]:
    rows = reader.read(Ranks(run_id=run_id, attempt=attempt))
    return dict(zip(rows["rank"].to_pylist(), rows["opened_ns"].to_pylist(), strict=True))


def _refusal(batch: Batch, known: dict[int, int]) -> TakenNameError | None:
    """0 says that nobody knows: rows of an older version, or of no folder at all."""
    columns = batch.rows["rank"].to_pylist(), batch.rows["opened_ns"].to_pylist()
    opened = {rank: at_ns for rank, at_ns in zip(*columns, strict=True) if at_ns}
    taken = [rank for rank, at_ns in opened.items() if known.get(rank, 0) not in (0, at_ns)]
    if taken:
        return TakenNameError(
            f"run {batch.run_id!r}, attempt {batch.attempt}: rank {min(taken)} is stored already, from another folder",
            hint="give each run a name of its own",
        )
    known.update(opened)
    return None
