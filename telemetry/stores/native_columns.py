"""Arrow columns as the driver of the native protocol takes them.

numbers, strings     NumPy arrays
timestamp[ns]        NumPy integers: the driver sends a DateTime64(9) as it is, whatever time zone anybody is in
one text a chunk     RepeatedText
map                  dicts
list of any of them  lists
"""

from typing import Any

import numpy as np
import pyarrow as pa

from telemetry.stores.native_block import RepeatedText


def native(column: pa.ChunkedArray) -> Any:
    """``column`` for ``execute(..., columnar=True)`` of a client with ``use_numpy``."""
    if repeated := RepeatedText.of(column):
        return repeated
    plain = column.cast(_without_timestamps(column.type))
    if pa.types.is_nested(column.type):
        return [_with_dicts(value, column.type) for value in plain.to_pylist()]
    values = plain.to_numpy(zero_copy_only=False)
    return values.astype(object) if values.dtype.kind in "US" else np.ascontiguousarray(values)


def _without_timestamps(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_without_timestamps(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _with_dicts(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_map(kind):
        return dict(value)
    return [_with_dicts(one, kind.value_type) for one in value] if pa.types.is_map(kind.value_type) else value
