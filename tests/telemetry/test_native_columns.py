"""Arrow columns pass unchanged through the driver's own writer and reader, over a real socket."""

import socket
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from clickhouse_driver.bufferedreader import BufferedSocketReader
from clickhouse_driver.bufferedwriter import BufferedSocketWriter
from clickhouse_driver.columns.service import read_column, write_column

from telemetry.stores.driver import native
from tests.each_case import each_case

AT_NS = 1_700_000_000_123_456_789
MAP = pa.map_(pa.string(), pa.string())
CONTEXT = SimpleNamespace(
    client_settings={
        "use_numpy": True,
        "strings_as_bytes": False,
        "strings_encoding": "utf-8",
        "input_format_null_as_default": False,
    },
    settings={},
    # Far from this machine's time zone. A stamp treated as local time would be wrong by hours.
    server_info=SimpleNamespace(get_timezone=lambda: "Pacific/Auckland"),
)


def sent_and_received(column: pa.Array, written_as: str, read_as: str) -> list[Any]:
    here, there = socket.socketpair()
    with here, there:
        writer = BufferedSocketWriter(here, 4096)
        write_column(CONTEXT, "column", written_as, native(pa.chunked_array([column])), writer)
        writer.flush()
        return list(read_column(CONTEXT, read_as, len(column), BufferedSocketReader(there, 4096)))


@each_case(
    ("column", "written_as", "read_as", "expected"),
    [
        (pa.array([AT_NS, 0], pa.timestamp("ns")), "DateTime64(9)", "Int64", [AT_NS, 0]),
        (
            pa.array([[AT_NS, 0], []], pa.list_(pa.timestamp("ns"))),
            "Array(DateTime64(9))", "Array(Int64)", [[AT_NS, 0], []],
        ),
        (
            pa.array([[("a", "b"), ("c", "")], []], MAP),
            "Map(String, String)", "Map(String, String)", [{"a": "b", "c": ""}, {}],
        ),
        (
            pa.array([[[("a", "b")], []], []], pa.list_(MAP)),
            "Array(Map(String, String))", "Array(Map(String, String))", [[{"a": "b"}, {}], []],
        ),
        (pa.array([[1, 2**63], []], pa.list_(pa.uint64())), "Array(UInt64)", "Array(UInt64)", [[1, 2**63], []]),
        (pa.array([[1.5], []], pa.list_(pa.float64())), "Array(Float64)", "Array(Float64)", [[1.5], []]),
        (pa.array([["x"], []], pa.list_(pa.string())), "Array(String)", "Array(String)", [["x"], []]),
        (pa.array([True, False]), "Bool", "Bool", [True, False]),
        (pa.array(["x", ""]), "String", "String", ["x", ""]),
        (pa.array([1, 2], pa.uint32()), "UInt32", "UInt32", [1, 2]),
    ],
)  # fmt: skip
def test_column_arrives_unchanged(column: pa.Array, written_as: str, read_as: str, expected: list[Any]) -> None:
    assert sent_and_received(column, written_as, read_as) == expected
