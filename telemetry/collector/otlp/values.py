"""Attribute values as text: the tables hold ``Map(String, String)``.

string  as it is            bool    true, false         int, double  shortest decimal
bytes   base64              array, kvlist   compact JSON
"""

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

MAP = pa.map_(pa.string(), pa.string())


def as_text(value: AnyValue) -> str:
    """A value as the text that is stored."""
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
    """One map a record."""
    offsets, keys, values = [0], [], []
    for attributes in attributes_of_each:
        for attribute in attributes:
            value = attribute.value
            keys.append(attribute.key)
            values.append(value.string_value or as_text(value))  # nearly all are strings; asking for the kind is dear
        offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(values, pa.string())
    )


def lists(lengths: Sequence[int], items: pa.Array) -> pa.ListArray:
    """``items`` as one list a record, of ``lengths``."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _plain(value: AnyValue) -> Any:
    """A value as JSON knows it."""
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(one) for one in value.array_value.values]
        case "kvlist_value":
            return {one.key: _plain(one.value) for one in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case None:
            return None
        case kind:
            return getattr(value, kind)
