"""A reader that counts and keeps its queries."""

from collections import Counter

import pyarrow as pa

from telemetry.stores.interface import Query, Reader


class Counting:
    """Counts queries by name, keeps them, and passes them to another reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.asked: Counter[str] = Counter()
        self.queries: list[Query] = []

    def read(self, query: Query) -> pa.Table:
        self.asked[type(query).__name__] += 1
        self.queries.append(query)
        return self._reader.read(query)
