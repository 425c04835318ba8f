"""What is asked of an embedded store while the process that holds it ends."""

from pathlib import Path

import pytest

from telemetry.errors import UnreachableError
from telemetry.stores.embedded import EmbeddedStore


def test_a_closed_store_is_said_to_be_closed(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    store.migrate()
    store.close()
    with pytest.raises(UnreachableError, match="is closed"):
        store.query("SELECT 1")
