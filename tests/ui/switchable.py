"""A store that goes and comes back, and may be slow."""

import time

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.interface import Query, Reader

GONE = "The collector does not answer"


class Switchable:
    """A reader whose store can be taken away and given back, or be made slow."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.reachable = True
        self.slow_s = 0.0

    def read(self, query: Query) -> pa.Table:
        time.sleep(self.slow_s)
        if not self.reachable:
            raise UnreachableError(GONE, hint="start it: `rankscope collect`")
        return self._reader.read(query)
