"""The format of data between agent, collector and readers, and its checks on arrival.

POST /v1/batches/{table}   Arrow IPC stream; schema = telemetry.tables.TABLES[table]
                           its metadata: run_id, attempt, and openings "RANK:OPENED_NS,RANK:OPENED_NS ..." of its ranks
POST /v1/query             JSON {"query": name, "parameters": {...}}  ->  Arrow IPC stream

Arrow IPC from outside is checked before any size that it declares is used:

    | FFFFFFFF | metadata length | metadata: a flatbuffer | body: buffers |   schema first, then record batches
                                     Message: slot 1 kind, slot 2 header
                                     RecordBatch: slot 3 compression

Only the agreed columns are read, so no other Arrow type is ever decoded. Compressed buffers are rejected: a few bytes
may declare any size, and decompress to it.
"""

import json
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from telemetry.errors import UsageError
from telemetry.plain_errors import in_plain_words
from telemetry.profiles import ProfileRequest
from telemetry.run_names import checked_run_name
from telemetry.stores.interface import Query
from telemetry.stores.queries import QUERIES
from telemetry.tables import TABLES
from telemetry.wire.plausible import check_rows

_HINT = "use the same version of agent and collector"


def read_rows(body: bytes, columns: pa.Schema, what: str) -> pa.Table:
    """The rows of a stream, with its metadata. Its columns are ``columns``, and every value is valid.

    Raises:
        UsageError: it is not a stream, is cut off, or has other columns or compressed buffers.
    """
    try:
        messages = iter(pa.ipc.MessageReader.open_stream(body))
        schema = pa.ipc.read_schema(_first(messages))
        if not schema.equals(columns, check_metadata=False):
            raise UsageError(f"columns of {what} do not match the schema", hint=_HINT)
        rows = pa.Table.from_batches([_batch(message, schema) for message in messages], schema=schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, EOFError, struct.error, MemoryError) as error:
        raise _no_stream(error) from error
    return rows


def _no_stream(error: Exception) -> UsageError:
    text = str(error).partition("\n")[0][:200]
    return UsageError(f"not an Arrow IPC stream: {text}", hint=_HINT)


def _first(messages: Iterator[pa.ipc.Message]) -> pa.ipc.Message:
    """The first message, which must be the schema. The library does not check the kind of a message."""
    first = next(messages, None)
    if first is None:
        raise ValueError("it is empty")
    if first.type != "schema":
        raise ValueError(f"it begins with {first.type}")
    return first


def _batch(message: pa.ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    if message.type != "record batch":
        raise ValueError(f"{message.type} among the record batches")
    if _is_packed(memoryview(message.metadata)):
        raise ValueError("its buffers are compressed: send them uncompressed")
    return pa.ipc.read_record_batch(message, schema)


def _is_packed(metadata: memoryview) -> bool:
    """Whether a record batch says that its buffers are compressed."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    header = _slot(metadata, message, 2)
    if not header:
        raise ValueError("a message without a header")
    return bool(_slot(metadata, header + struct.unpack_from("<I", metadata, header)[0], 3))


def _slot(buffer: memoryview, table: int, slot: int) -> int:
    """The position of a field of a flatbuffer's table; 0 if the table lacks it."""
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    size, place = struct.unpack_from("<H", buffer, fields)[0], 4 + 2 * slot
    offset = struct.unpack_from("<H", buffer, fields + place)[0] if place < size else 0
    return table + offset if offset else 0


ARROW_TYPE = "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"
MAX_ATTEMPT = 10**6
"""Largest number of restarts of one job. A larger number is a mistake or an attack."""
MAX_OPENINGS_LENGTH = 2**20
MAX_SEQ = 2**63
MAX_COUNT = 2**32 - 1
MAX_TIME_NS = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Checked rows of one table and one attempt. Within each rank, rows with ``seq`` are in its order."""

    table: str
    run_id: str
    attempt: int
    rows: pa.Table
    openings: Mapping[int, int] = field(default_factory=dict)
    """Rank -> when its folder was first opened; a rank that is left out has no folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """The result of a batch: rows stored now, and rows dropped because they had been stored before."""

    rows: int
    duplicates: int
    profiles: tuple[ProfileRequest, ...] = ()
    """Open requests to the ranks of a batch of heartbeats."""


def labelled(rows: pa.Table, run_id: str, attempt: int, openings: Mapping[int, int] | None = None) -> pa.Table:
    """``rows`` with metadata: their run and attempt, and the folder of each rank."""
    metadata = {"run_id": run_id, "attempt": str(attempt)}
    if openings:
        metadata["openings"] = ",".join(f"{rank}:{opened_ns}" for rank, opened_ns in openings.items())
    return rows.replace_schema_metadata(metadata)


def encode(rows: pa.Table) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode(body: bytes) -> pa.Table:
    """The table of an Arrow IPC stream.

    Raises:
        UsageError: it is not a stream.
    """
    try:
        with pa.ipc.open_stream(body) as reader:
            rows = reader.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _no_stream(error) from error
    return rows


def decode_batch(table: str, body: bytes) -> Batch:
    """A batch that can be stored.

    Raises:
        UsageError: an unknown table, wrong columns, no owner, missing values, rows out of order, or impossible numbers.
    """
    if table not in TABLES:
        raise UsageError(f"unknown table {table!r}", hint=f"tables are {', '.join(TABLES)}")
    rows = read_rows(body, TABLES[table], table)
    if any(column.null_count for column in rows.columns):
        raise UsageError(f"missing values in {table}", hint="give each column a value in each row")
    metadata = rows.schema.metadata or {}
    run_id, attempt = _owner(metadata)
    openings = _openings(metadata.get(b"openings", b""))
    if "seq" in rows.column_names:
        _check_order(table, rows)
    check_rows(table, rows, openings, now_ns=time.time_ns())
    return Batch(table=table, run_id=run_id, attempt=attempt, rows=rows, openings=openings)


def _owner(metadata: dict[bytes, bytes]) -> tuple[str, int]:
    try:
        run_id = metadata[b"run_id"].decode()
        attempt = int(metadata[b"attempt"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            "the batch has no run_id, or no integer as its attempt", hint="set both in the metadata of the schema"
        ) from error
    if not 0 <= attempt <= MAX_ATTEMPT:
        raise UsageError(f"attempt {attempt} is out of range", hint=f"attempts count from 0 to {MAX_ATTEMPT}")
    return checked_run_name(run_id), attempt


def _openings(text: bytes) -> dict[int, int]:
    if len(text) > MAX_OPENINGS_LENGTH:
        raise UsageError(
            f"the metadata 'openings' of the batch is longer than {MAX_OPENINGS_LENGTH:,} bytes",
            hint="include only the ranks of the batch, each once",
        )
    try:
        pairs = [pair.split(b":") for pair in text.split(b",") if pair]
        openings = {int(rank): int(opened_ns) for rank, opened_ns in pairs}
    except ValueError as error:
        raise UsageError(
            "the metadata 'openings' of the batch cannot be read", hint='the format is "RANK:OPENED_NS,RANK:OPENED_NS"'
        ) from error
    if not all(0 <= opened_ns <= MAX_TIME_NS for opened_ns in openings.values()):
        raise UsageError(
            "a time in the metadata 'openings' of the batch is out of range", hint="times are nanoseconds since 1970"
        )
    return openings


def _check_order(table: str, rows: pa.Table) -> None:
    rank, seq = rows["rank"].to_numpy(), rows["seq"].to_numpy()
    if not len(seq):
        return
    if int(seq.max()) >= MAX_SEQ:
        raise UsageError(f"seq {int(seq.max())} in table {table} is too large", hint="records are numbered from 0")
    starts, lengths = rank_runs(rank)
    within = seq[1:] > seq[:-1]
    within[starts[1:] - 1] = True
    # A rank may have several runs: each must continue after the previous one.
    by_rank = np.argsort(rank[starts], kind="stable")
    same_rank = np.diff(rank[starts][by_rank]) == 0
    first, last = seq[starts][by_rank], seq[starts + lengths - 1][by_rank]
    across = first[1:] > last[:-1]
    if not bool(within.all()) or not bool(across[same_rank].all()):
        raise UsageError(f"rows of {table} are out of order", hint="sort the rows of each rank by seq")


def rank_runs(rank: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Starts and lengths of runs of equal ranks. An agent sends one or a few runs for each rank."""
    starts = np.concatenate([[0], np.flatnonzero(rank[1:] != rank[:-1]) + 1]) if len(rank) else np.zeros(0, np.intp)
    return starts, np.diff(starts, append=len(rank))


def encode_query(query: Query) -> dict[str, Any]:
    """``query`` as a JSON object."""
    return {"query": type(query).__name__, "parameters": asdict(query)}  # type: ignore[call-overload]


def decode_query(body: bytes) -> Query:
    """The query in a JSON object: one of ``QUERIES``, with parameters of their types.

    Raises:
        UsageError: no JSON object, an unknown query, or a parameter that is missing, unknown or of the wrong type.
    """
    name, parameters = _name_and_parameters(body)
    query = QUERIES.get(name)
    if query is None:
        raise UsageError(f"unknown query {name!r}", hint=f"queries are {', '.join(QUERIES)}")
    known = [field.name for field in fields(query)]  # type: ignore[arg-type]
    takes = f"{name} takes {', '.join(known) or 'no parameters'}"
    if unknown := sorted(set(parameters) - set(known)):
        raise UsageError(f"{name} has no parameter {unknown[0]!r}", hint=takes)
    try:
        asked: Query = _adapter(query).validate_json(json.dumps(parameters), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{name}: {where}: {in_plain_words(first['msg'])}", hint=takes) from error
    _check_range(asked, takes)
    return asked


@cache
def _adapter(query: type[Query]) -> TypeAdapter[Query]:
    """The validator of a query. It is cached, because creating it takes longer than most answers."""
    return TypeAdapter(query)


def _name_and_parameters(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        asked = json.loads(body)
        name, parameters = asked["query"], asked.get("parameters", {})
        if not isinstance(name, str) or not isinstance(parameters, dict):
            raise TypeError("query must be a name, parameters an object")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"not a query: {error}", hint='send {"query": "Runs", "parameters": {}} as application/json'
        ) from error
    return name, parameters


def _check_range(query: Query, hint: str) -> None:
    """Check that numbers are not negative, and that only times have more than 32 bits. With larger numbers, old servers
    overflow and crash with a division by zero."""
    for name, value in asdict(query).items():  # type: ignore[call-overload]
        most = MAX_TIME_NS if name.endswith("_ns") else MAX_COUNT
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not 0 <= number <= most:
                raise UsageError(f"{name}: {number} is out of range", hint=hint)
    try:
        query.sql()
    except (AssertionError, ArithmeticError, ValueError) as error:
        raise UsageError(f"{type(query).__name__}: these parameters contradict each other", hint=hint) from error
