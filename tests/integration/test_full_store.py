"""The disk of an embedded store is full. The store reports it and loses no stored rows."""

import json
from pathlib import Path

import pytest

from telemetry.stores.embedded import EmbeddedStore
from tests.forkserver import output_of
from tests.integration.chaos.small_disk import small_disk
from tests.parts import require_root
from tests.scenarios.command import run_code

OPEN = """
import sys
from telemetry.errors import RankscopeError
from telemetry.stores.open import open_store
try:
    store = open_store(sys.argv[1])
except RankscopeError as error:
    sys.exit(f"{error}")
print(store.query("SELECT count() AS n FROM spans")["n"][0].as_py())
store.close()
"""


def test_store_on_a_full_disk_is_not_opened_and_stays_intact(tmp_path: Path) -> None:
    require_root("mounts a small file system")
    with small_disk(tmp_path, size_mib=64) as disk:
        url = f"embedded:{tmp_path / 'store'}"
        assert run_code(OPEN, url).out == "0\n"
        disk.fill()
        refused = run_code(OPEN, url)
        assert refused.status == 1
        assert "the disk has 0 MiB left" in refused.out
        disk.free()
        assert run_code(OPEN, url).out == "0\n"


def views_to_make(store: EmbeddedStore) -> list[str]:
    return [statement for statement in store.plan() if "VIEW" in statement]


def test_view_that_is_up_to_date_is_not_created_again() -> None:
    store = EmbeddedStore()
    assert len(views_to_make(store)) == 1
    store.migrate()
    assert not views_to_make(store)
    store.database.execute("DROP VIEW otel_traces")
    assert len(views_to_make(store)) == 1
    store.migrate()
    assert store.query("SELECT count() AS n FROM otel_traces")["n"].to_pylist() == [0]
    store.close()


@pytest.mark.parametrize("rounds", [16, pytest.param(100, marks=pytest.mark.long)])
def test_rows_acknowledged_while_the_disk_fills_up_are_stored(tmp_path: Path, rounds: int) -> None:
    """The engine continues without an error if the disk becomes full during a write."""
    require_root("mounts a small file system")
    printed = output_of("-m", "tests.integration.filled_store", str(tmp_path), str(rounds), "1")
    found = json.loads(printed.splitlines()[-1])
    assert found["rows"] == found["numbers"] == found["told"] > 0
    assert found["total"] == sum(range(found["told"]))
    assert found["refused"] > 0
