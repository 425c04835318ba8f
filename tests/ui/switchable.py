"""A store that can be unreachable or slow."""

import time

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.interface import Query, Reader

GONE = "The collector does not answer"


class Switchable:
    """A reader whose store a test can make unreachable, reachable again, or slow."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.reachable = True
        self.slow_s = 0.0

    def read(self, query: Query) -> pa.Table:
        time.sleep(self.slow_s)
        if not self.reachable:
            raise UnreachableError(GONE, hint="start it: `rankscope collect`")
        return self._reader.read(query)
