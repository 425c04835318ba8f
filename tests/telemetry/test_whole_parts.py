"""Incomplete parts of an embedded store are found and moved away. The rows merged into them are restored."""

import re
import threading
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from telemetry.errors import UnreachableError
from telemetry.stores.embedded import CHECK_S, EmbeddedStore
from telemetry.stores.whole_parts import HASH_BYTES, LISTED, TABLES, WholeParts, listed_sizes
from tests.memory_store import memory_store

COUNT = "SELECT count() AS n, sum(value) AS total FROM samples"


def rows_from(seq: int) -> pa.Table:
    return pa.table(
        {
            "run_id": ["torn"] * 3,
            "attempt": pa.array([0] * 3, pa.uint32()),
            "rank": pa.array([0] * 3, pa.uint32()),
            "seq": pa.array(range(seq, seq + 3), pa.uint64()),
            "at_ns": pa.array(range(3), pa.int64()),
            "metric": ["loss"] * 3,
            "value": [1.0, 2.0, 3.0],
        }
    )


def store_in(folder: Path) -> EmbeddedStore:
    """A store with three inserts."""
    store = EmbeddedStore(folder)
    store.migrate()
    for seq in (0, 3, 6):
        store.insert("samples", rows_from(seq))
    return store


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    return store_in(tmp_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The files of a closed store. A test that changes a file writes it back."""

    folder: Path
    newest_part: Path


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Closed:
    folder = tmp_path_factory.mktemp("closed")
    store = store_in(folder)
    part = newest_part(store)
    store.close()
    return Closed(folder=folder, newest_part=part)


def newest_part(store: EmbeddedStore) -> Path:
    sql = "SELECT path FROM system.parts WHERE active AND table = 'samples' ORDER BY max_block_number DESC LIMIT 1"
    return Path(store.query(sql)["path"][0].as_py())


def files_of(part: Path) -> list[Path]:
    return sorted(path for path in part.rglob("*") if path.is_file())


def test_part_that_lacks_any_byte_is_found_as_torn(closed: Closed) -> None:
    part = closed.newest_part
    assert WholeParts(closed.folder).find_torn() == []
    found = {}
    for path in files_of(part):
        content = path.read_bytes()
        for size in {0, len(content) - 1}:
            path.write_bytes(content[:size])
            found[path.relative_to(part), size] = WholeParts(closed.folder).find_torn()
        path.write_bytes(content)
    assert len(found) > 20
    # No list has the size of these few files. They only must not be empty.
    assert {str(path) for (path, size), torn in found.items() if torn != [part] and size} <= {
        f"{where}{name}.txt"
        for where in ("", "high_water.proj/", "opening_water.proj/")
        for name in ("columns", "columns_substreams", "default_compression_codec")
    }
    assert all(torn == [part] for (_, size), torn in found.items() if not size)
    assert WholeParts(closed.folder).find_torn() == []


def test_part_is_checked_only_once(closed: Closed) -> None:
    parts, data = WholeParts(closed.folder), closed.newest_part / "data.bin"
    assert parts.find_torn() == []
    content = data.read_bytes()
    data.write_bytes(b"")
    assert parts.find_torn() == []
    assert WholeParts(closed.folder).find_torn() == [closed.newest_part]
    data.write_bytes(content)


def merge_and_tear(store: EmbeddedStore) -> Path:
    store.database.execute("OPTIMIZE TABLE samples FINAL")
    merged = newest_part(store)
    assert not merged.name.endswith("_0")
    for path in files_of(merged):
        if path.name != "checksums.txt":
            path.write_bytes(b"")
    return merged


def test_rows_merged_into_a_torn_part_are_restored(
    store: EmbeddedStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merged = merge_and_tear(store)
    store.settle()
    assert store.query(COUNT).to_pylist() == [{"n": 9, "total": 18.0}]
    store.insert("samples", rows_from(9))
    assert store.query(COUNT).to_pylist() == [{"n": 12, "total": 24.0}]
    store.close()
    assert [path.name for path in tmp_path.glob(f"{TABLES}detached/torn_*")] == [f"torn_0_{merged.name}"]
    assert f"moved away {merged}" in capsys.readouterr().err


def test_concurrent_repair_does_not_hide_a_torn_part_from_the_insert_that_wrote_it(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = WholeParts.find_torn
    others: list[threading.Thread] = []

    def look_late(parts: WholeParts) -> list[Path]:
        if not others and store.query(COUNT)["n"][0].as_py() == 12:
            (newest_part(store) / "data.bin").write_bytes(b"")
            others.append(threading.Thread(target=store.repair_parts))
            others[0].start()
            others[0].join(2)  # long enough for the repair if it did not wait for the insert
        return look(parts)

    monkeypatch.setattr(WholeParts, "find_torn", look_late)
    with pytest.raises(UnreachableError, match="are incomplete"):
        store.insert("samples", rows_from(9))
    others[0].join()
    assert store.query(COUNT).to_pylist() == [{"n": 9, "total": 18.0}]
    store.close()


def test_store_is_closed_and_keeps_merged_parts_if_there_is_no_room_to_repair(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: Path) -> None:
        raise UnreachableError("no room", hint="make some")

    merge_and_tear(store)
    with monkeypatch.context() as full:
        full.setattr("telemetry.stores.embedded.check_room", no_room)
        for _ in range(2):
            with pytest.raises(UnreachableError, match="no room"):
                store.settle()
            with pytest.raises(UnreachableError, match="is closed"):
                store.query(COUNT)
    store.settle()
    assert store.query(COUNT).to_pylist() == [{"n": 9, "total": 18.0}]
    store.close()


def test_every_table_keeps_merged_parts_longer_than_a_torn_part_stays_undetected() -> None:
    sql = "SELECT name, engine_full FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
    with memory_store() as store:
        rows = store.query(sql).to_pylist()
    kept = {row["name"]: re.search(r"old_parts_lifetime = (\d+)", row["engine_full"]) for row in rows}
    assert {name for name, found in kept.items() if not found} == {"migrations"}
    assert all(int(found[1]) > 2 * CHECK_S for found in kept.values() if found)


def test_a_torn_part_is_found_at_the_next_start(store: EmbeddedStore, tmp_path: Path) -> None:
    merge_and_tear(store)
    store.close()
    again = EmbeddedStore(tmp_path)
    assert again.query(COUNT).to_pylist() == [{"n": 9, "total": 18.0}]
    again.close()


def test_truncated_checksum_list_is_refused(closed: Closed) -> None:
    whole = (closed.newest_part / "checksums.txt").read_bytes()
    assert "data.bin" in listed_sizes(whole)
    for size in (0, 1, 30, 60, 200):
        with pytest.raises(ValueError, match="cut off"):
            listed_sizes(whole[:size])


def test_checksum_list_of_another_version_or_compression_gives_no_sizes() -> None:
    assert listed_sizes(b"checksums format version: 5\nwhatever") == {}
    assert listed_sizes(LISTED + bytes(HASH_BYTES) + b"\x91" + bytes(8)) == {}
