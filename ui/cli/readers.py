"""From an address to a reader: a collector, a store at hand, or rank files.

Engines and HTTP clients are optional extras and heavy to load, so they are imported where an address asks for them,
and only here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.stores.interface import Reader, StoreReader


@contextmanager
def open_reader(address: str) -> Iterator[Reader]:
    """Whoever answers at ``address``: a collector's ``http://`` or ``https://``, else a store.

    The token for a collector comes from ``RANKSCOPE_TOKEN``.

    Raises:
        UsageError: an address of no known form.
        UnreachableError: nobody answers there.
    """
    if address.startswith(("http://", "https://")):
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
    """Whether ``address`` names a folder of an embedded store that nobody has made yet: to open it would make it."""
    scheme, _, folder = address.partition(":")
    return scheme == "embedded" and bool(folder) and not (Path(folder) / "metadata").is_dir()


def _refuse_missing(address: str) -> None:
    """Asking must not make a store where there is none."""
    if is_missing(address):
        folder = address.partition(":")[2]
        raise UsageError(f"no store in {folder}", hint="`rankscope collect --store embedded:DIR` makes one")


def _refuse_shipped(spool: Path) -> None:
    """Files whose records are stored and gone say nothing: that must not read as health."""
    readers = [RankReader(folder) for folder in find_rank_dirs(spool)]
    if readers and all(reader.acked() and not reader.first_end(0) for reader in readers):
        raise UsageError(
            f"the records of {spool} were shipped and reclaimed",
            hint="ask the collector that has them: --store http://...",
        )


@contextmanager
def open_spool(spool: Path) -> Iterator[Reader]:
    """Rank files under ``spool``, read into a store in memory: no collector needed.

    Raises:
        UsageError: no rank file there.
        UnreadableError: a file that is no rank file.
    """
    from telemetry.imports.spool import store_from_spool  # noqa: PLC0415

    _refuse_shipped(spool)
    store = store_from_spool(spool)
    try:
        yield StoreReader(store)
    finally:
        store.close()
