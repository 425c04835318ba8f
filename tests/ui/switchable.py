"""A store that goes and comes back."""

import pyarrow as pa

from telemetry.errors import UnreachableError
from telemetry.stores.question import Query
from telemetry.stores.reader import Reader


class Switchable:
    """A reader whose store can be taken away and given back."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.reachable = True

    def read(self, query: Query) -> pa.Table:
        if not self.reachable:
            raise UnreachableError("The collector does not answer", hint="start it: `rankscope collect`")
        return self._reader.read(query)
