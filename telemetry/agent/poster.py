"""The agent's way out: rows to whoever stores them."""

from typing import Protocol

import pyarrow as pa

from telemetry.wire.codec import Ack


class Poster(Protocol):
    """Where rows go. Blocks.

    Raises:
        UnreachableError: later, perhaps.
        UsageError: refused for good.
        RefusedRowsError: likewise, these rows alone; rows of other runs may be stored.
    """

    def post(self, table: str, rows: pa.Table) -> Ack:
        """Store rows; they are stored when this returns."""
