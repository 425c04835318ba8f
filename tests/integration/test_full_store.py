"""The disk of an embedded store is full. The store reports it and loses no stored rows."""

import json
import subprocess
import sys
from pathlib import Path

from telemetry.stores.embedded import EmbeddedStore
from tests.integration.chaos.small_disk import small_disk
from tests.parts import require_root

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


def opened(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OPEN, url], capture_output=True, text=True, check=False, timeout=120)


def test_store_on_a_full_disk_is_not_opened_and_stays_intact(tmp_path: Path) -> None:
    require_root("mounts a small file system")
    with small_disk(tmp_path, size_mib=64) as disk:
        url = f"embedded:{tmp_path / 'store'}"
        assert opened(url).stdout == "0\n"
        disk.fill()
        told = opened(url)
        assert told.returncode == 1
        assert "the disk has 0 MiB left" in told.stderr
        disk.free()
        again = opened(url)
        assert (again.stdout, again.stderr) == ("0\n", "")


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


def test_rows_acknowledged_while_the_disk_fills_up_are_stored(tmp_path: Path) -> None:
    """The engine continues without an error if the disk becomes full during a write."""
    require_root("mounts a small file system")
    command = [sys.executable, "-m", "tests.integration.filled_store", str(tmp_path), "25", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert told.returncode == 0, told.stderr[-2000:]
    found = json.loads(told.stdout)
    assert found["rows"] == found["numbers"] == found["told"] > 0
    assert found["total"] == sum(range(found["told"]))
    assert found["refused"] > 0
