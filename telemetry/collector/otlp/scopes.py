"""Flattens nested OTLP records: one row for each record, with the attributes of its resource and scope.

request  [ resource A [ scope 1 [ record record ] [ scope 2 [ record ] ] ], resource B ... ]
records  record record record ...          scopes   A1  A2  B1 ...       scope_of  0 0 1 ...

Attribute values become text, because the tables hold ``Map(String, String)``:

string  as it is            bool    true, false         int, double  shortest decimal
bytes   base64              array, kvlist   compact JSON
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from telemetry.collector.otlp.message import TooBigError


def as_text(value: AnyValue) -> str:
    """The stored text of a value."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return value.string_value
    if kind == "int_value":
        return str(value.int_value)
    if kind == "double_value":
        return repr(value.double_value).removesuffix(".0")
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return "" if plain is None else json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def maps(attributes_of_each: Iterable[Iterable[KeyValue]]) -> pa.MapArray:
    """One map for each record."""
    offsets, keys, values = [0], [], []
    for attributes in attributes_of_each:
        for attribute in attributes:
            value = attribute.value
            keys.append(attribute.key)
            values.append(value.string_value or as_text(value))  # almost all are strings, and WhichOneof is slow
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(values, pa.string())
    )


def lists(lengths: Sequence[int], items: pa.Array) -> pa.ListArray:
    """``items`` as one list for each record, of the given ``lengths``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _plain(value: AnyValue) -> Any:
    """A value in the types of JSON."""
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: _plain(item.value) for item in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case None:
            return None
        case kind:
            return getattr(value, kind)


LAST_NS = 2**63 - 1
"""The last time that fits a column of nanoseconds, in the year 2262."""
MAX_PARTS = 1_000_000
"""Largest number of parts of a request: records, attributes, events, links and exemplars. A part takes at least two
bytes in the request, and hundreds in memory."""
MAX_SCOPE_BYTES = 256 * 2**20
"""Largest size of the attributes of resources and scopes, which are repeated for each record of a request."""
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A request as rows by table, the number of rejected records, and the reason of the first rejection."""

    tables: dict[str, pa.Table]
    rejected: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The source of records: a library within a service."""

    resource: Resource
    resource_url: str
    scope: InstrumentationScope
    scope_url: str

    @property
    def size_bytes(self) -> int:
        """Bytes that are stored with each record."""
        messages: int = self.resource.ByteSize() + self.scope.ByteSize()
        return messages + len(self.resource_url) + len(self.scope_url)


ScopeRecords = TypeVar("ScopeRecords")
"""A ``ScopeSpans``, ``ScopeLogs`` or ``ScopeMetrics``."""


def scopes_of(resource: Any, scopes: Iterable[ScopeRecords]) -> Iterator[tuple[Scope, ScopeRecords]]:
    """Each scope of a ``ResourceSpans``, ``ResourceLogs`` or ``ResourceMetrics``, with its identity."""
    urls: Any
    for urls in scopes:
        scope = Scope(
            resource=resource.resource, resource_url=resource.schema_url, scope=urls.scope, scope_url=urls.schema_url
        )
        yield scope, urls


@dataclass(slots=True, kw_only=True)
class Records(Generic[Record]):
    """Records of one kind, in the order of arrival.

    Args:
        fault: why a record is invalid; empty if it is valid. Invalid records are left out and counted.
        num_parts: the number of attributes and similar parts of a record.
    """

    fault: Callable[[Record], str]
    num_parts: Callable[[Record], int]
    records: list[Record] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Number of records of each scope."""
    rejected: int = 0
    reason: str = ""
    parts: int = 0
    scope_bytes: int = 0

    def add(self, scope: Scope, records: Sequence[Record]) -> None:
        """Add the records of one scope.

        Raises:
            TooBigError: the request has too many parts, or would have too many bytes as rows.
        """
        before = len(self.records)
        self._expect(1 + len(records) + len(scope.resource.attributes) + len(scope.scope.attributes))
        self.scope_bytes += scope.size_bytes * len(records)
        if self.scope_bytes > MAX_SCOPE_BYTES:
            raise TooBigError(
                f"the attributes of resources and scopes take more than {MAX_SCOPE_BYTES} bytes, "
                "because they are stored with each record"
            )
        for record in records:
            self._expect(self.num_parts(record))
            if fault := self.fault(record):
                self.rejected += 1
                self.reason = self.reason or fault
            else:
                self.records.append(record)
        self.scopes.append(scope)
        self.lengths.append(len(self.records) - before)

    def _expect(self, num_parts: int) -> None:
        self.parts += num_parts
        check_parts(self.parts)

    def scope_columns(self, names: Iterable[str]) -> dict[str, pa.Array]:
        """Columns of the scopes, one row for each record."""
        scope_of: npt.NDArray[np.int64] = np.repeat(np.arange(len(self.scopes)), self.lengths)
        columns = {
            "ServiceName": _texts(_service(scope.resource.attributes) for scope in self.scopes),
            "ResourceAttributes": maps(scope.resource.attributes for scope in self.scopes),
            "ResourceSchemaUrl": _texts(scope.resource_url for scope in self.scopes),
            "ScopeName": _texts(scope.scope.name for scope in self.scopes),
            "ScopeVersion": _texts(scope.scope.version for scope in self.scopes),
            "ScopeAttributes": maps(scope.scope.attributes for scope in self.scopes),
            "ScopeDroppedAttrCount": pa.array(
                [scope.scope.dropped_attributes_count for scope in self.scopes], pa.uint32()
            ),
            "ScopeSchemaUrl": _texts(scope.scope_url for scope in self.scopes),
        }
        return {name: columns[name].take(pa.array(scope_of)) for name in names}


def check_parts(number: int) -> None:
    """Check the number of parts before they are converted.

    Raises:
        TooBigError: there are too many parts for one request.
    """
    if number > MAX_PARTS:
        raise TooBigError(f"the request has more than {MAX_PARTS} records and attributes")


def moments(stamps_ns: Iterable[int]) -> pa.Array:
    """Nanoseconds since 1970 in the engine's type of a DateTime64(9)."""
    return pa.array(list(stamps_ns), pa.int64()).cast(pa.timestamp("ns"))


def _service(attributes: Iterable[KeyValue]) -> str:
    return next((as_text(attribute.value) for attribute in attributes if attribute.key == "service.name"), "")


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(list(values), pa.string())
