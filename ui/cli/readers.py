"""Opens a reader of a collector, a store, or rank files.

Engines and HTTP clients are optional extras and slow to import. So they are imported only if an address needs them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stores.address import checked_readable
from telemetry.stores.interface import Reader, StoreReader


@contextmanager
def open_reader(address: str) -> Iterator[Reader]:
    """A reader of the collector or store at ``address``. The address of a collector begins with ``http``.

    The token for a collector is read from ``RANKSCOPE_TOKEN``.

    Raises:
        UsageError: the form of the address is unknown.
        UnreachableError: the collector or store does not answer.
    """
    if checked_readable(address).startswith(("http://", "https://")):
        from telemetry.wire.client import CollectorClient  # noqa: PLC0415

        with CollectorClient(address) as client:
            yield client
        return
    from telemetry.stores.open import open_store  # noqa: PLC0415

    _refuse_missing(address)
    store = open_store(address, for_reading=True)
    try:
        yield StoreReader(store)
    finally:
        store.close()


def is_missing(address: str) -> bool:
    """Whether ``address`` names a folder without an embedded store. Opening such an address would create a store."""
    scheme, _, folder = address.partition(":")
    return scheme == "embedded" and bool(folder) and not (Path(folder) / "metadata").is_dir()


def _refuse_missing(address: str) -> None:
    """Raise UsageError if there is no store, because a query must not create one."""
    if is_missing(address):
        folder = address.partition(":")[2]
        raise UsageError(f"no store in {folder}", hint="create one with `rankscope collect --store embedded:DIR`")


def _refuse_shipped(spool: Path) -> None:
    """Raise UsageError if all records were sent and deleted. Without records, the run would seem healthy."""
    readers = [RankReader(folder) for folder in find_rank_dirs(spool)]
    if readers and all(reader.acked() and not reader.first_end(0) for reader in readers):
        raise UsageError(
            f"the records of {spool} were sent to a collector and deleted here",
            hint="query that collector: --store http://...",
        )


@contextmanager
def open_spool(spool: Path) -> Iterator[Reader]:
    """A reader of the rank files under ``spool``. They are loaded into a store in memory, without a collector.

    Raises:
        UsageError: there is no rank file.
        UnreadableError: a file is not a rank file.
    """
    from telemetry.imports.spool import store_from_spool  # noqa: PLC0415

    _refuse_shipped(spool)
    store = store_from_spool(spool)
    try:
        yield StoreReader(store)
    finally:
        store.close()
