"""A reader that counts what it is asked."""

from collections import Counter

import pyarrow as pa

from telemetry.stores.interface import Query, Reader


class Counting:
    """Counts queries by name; answers as the reader behind it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.asked: Counter[str] = Counter()

    def read(self, query: Query) -> pa.Table:
        self.asked[type(query).__name__] += 1
        return self._reader.read(query)
