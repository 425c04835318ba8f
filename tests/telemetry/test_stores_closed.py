"""Queries of an embedded store after it was closed."""

from pathlib import Path

import pytest

from telemetry.errors import UnreachableError
from telemetry.stores.embedded import EmbeddedStore


def test_query_of_a_closed_store_raises_an_error_that_says_closed(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.migrate()
    store.close()
    with pytest.raises(UnreachableError, match="is closed"):
        store.query("SELECT 1")
