"""One execution trace of Chakra (mlcommons/chakra, schema/protobuf/et_def.proto) as nodes. The content shows the form:

    protobuf            length, GlobalMetadata, length, Node, length, Node ...              chakra.0.et
    JSON of it          {metadata} {node} {node} ..., one after the other                   chakra_jsonizer
    workload graph      {"workload_graph": [{"Id", "Name", "NodeType", "runtime", ...}]}    of the feeder
    linked host trace   {"schema", "nodes": [{"id", "name", "ctrl_deps", "ts", ...}]}       chakra_trace_link

Durations are microseconds. A node of the first three forms has a begin only if its writer knew it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.imports.protobuf_fields import fields_of, numbers_of, varint
from telemetry.imports.span_rows import whole
from telemetry.imports.text_input import content_of, text

HINT = "give a Chakra trace of each rank: chakra.0.et, or its JSON"
MAX_NODES = 5_000_000
MAX_US = 2**62 // 1000
MAX_NAME = 2**10
KINDS = ("invalid", "metadata", "load", "store", "compute", "send", "recv", "collective")
COMM_TYPES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter", "barrier"),
)


@dataclass(slots=True, kw_only=True)
class Node:
    """An operation of the trace."""

    number: int
    name: str = ""
    kind: str = "compute"
    """One of ``KINDS``."""
    parents: list[int] = field(default_factory=list)
    """Nodes that called it (control dependencies)."""
    inputs: list[int] = field(default_factory=list)
    """Nodes whose results it needs (data dependencies)."""
    start_us: int = 0
    """0 if it is not known."""
    duration_us: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)
    values: str = ""
    """Values of the inputs, as text."""

    @property
    def is_on_device(self) -> bool:
        return self.attributes.get("is_cpu_op") in (0, False)


def read_nodes(path: Path) -> list[Node]:
    """The nodes of a trace, in the order of the file.

    Raises:
        UsageError: no such file.
        UnreadableError: the file is damaged, or not a Chakra trace.
    """
    content = content_of(path, HINT)
    try:
        read = _in_json if content.lstrip()[:1] == b"{" and b'"' in content[:4096] else _in_protobuf
        nodes = list(read(content))
    except (ValueError, IndexError, TypeError, OverflowError, RecursionError) as error:
        raise UnreadableError(f"{path} is not a complete Chakra trace: {str(error)[:200]}", hint=HINT) from error
    if not nodes:
        raise UnreadableError(f"{path} has no node", hint=HINT)
    return nodes


# Protobuf.


def _in_protobuf(content: bytes) -> Iterator[Node]:
    at, number = 0, 0
    while at < len(content):
        size, at = varint(content, at)
        if at + size > len(content):
            raise ValueError(f"message {number} has {size} bytes, but {len(content) - at} are left")
        if number and size:
            yield _node(content[at : at + size])
        at, number = at + size, number + 1
        if number > MAX_NODES:
            raise ValueError(f"the file has more than {MAX_NODES:,} nodes")


def _node(message: bytes) -> Node:
    node = Node(number=0)
    for number, value in fields_of(message):
        match number, value:
            case 1, int():
                node.number = value
            case 2, bytes():
                node.name = _text(value)
            case 3, int():
                node.kind = _kind(value)
            case ((4 | 5), _):
                (node.parents if number == 4 else node.inputs).extend(numbers_of(value))
            case 6, int():
                node.start_us = _time(value)
            case 7, int():
                node.duration_us = _time(value)
            case 8, bytes():
                node.values = next(
                    (_text(part, 2**20) for key, part in fields_of(value) if key == 1 and isinstance(part, bytes)), ""
                )
            case 10, bytes():
                name, found = _attribute(value)
                node.attributes[name] = found
    return node


def _attribute(message: bytes) -> tuple[str, Any]:
    """Name and value. Floating-point values and lists are not used."""
    name = ""
    found: int | str | None = None
    for number, value in fields_of(message):
        if number == 1 and isinstance(value, bytes):
            name = _text(value)
        elif number in (7, 9, 11, 13, 27) and isinstance(value, int):
            found = value if number in (11, 13) or value < 2**63 else value - 2**64
        elif number in (15, 17) and isinstance(value, int):
            found = (value >> 1) ^ -(value & 1)
        elif number == 29 and isinstance(value, bytes):
            found = _text(value)
    return name, found


def _text(value: bytes, most: int = MAX_NAME) -> str:
    return value[:most].decode(errors="replace")


# JSON.


def _in_json(content: bytes) -> Iterator[Node]:
    documents = _documents(content.decode())
    first = next(documents, None)
    if not isinstance(first, dict):
        return
    if isinstance(first.get("workload_graph"), list):
        yield from (_graph_node(fields) for fields in _objects(first["workload_graph"]))
    elif isinstance(first.get("nodes"), list):
        yield from (_host_node(fields) for fields in _objects(first["nodes"]))
    else:
        found = [first, *documents]
        yield from (_graph_node(_plain(fields)) for fields in _objects(found) if "id" in fields)


def _documents(content: str) -> Iterator[Any]:
    """JSON documents that follow each other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := _next_document(content, at)) < len(content):
        found, at = decoder.raw_decode(content, at)
        yield found


def _next_document(content: str, at: int) -> int:
    while at < len(content) and content[at] in " \t\r\n":
        at += 1
    return at


def _objects(values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    if len(values) > MAX_NODES:
        raise ValueError(f"the file has more than {MAX_NODES:,} nodes")
    for value in values:
        if not isinstance(value, dict):
            raise ValueError("a node is not an object")
        yield value


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A node of protobuf's JSON form, with the names of a workload graph."""
    kind = str(fields.get("type", "INVALID_NODE")).removesuffix("_NODE").removeprefix("COMM_").lower()
    kinds = {"comp": 4, "send": 5, "recv": 6, "coll": 7, "mem_load": 2, "mem_store": 3, "metadata": 1}
    attributes = fields.get("attr")
    inputs = fields.get("inputs")
    return {
        "Id": fields.get("id"),
        "Name": fields.get("name"),
        "NodeType": kinds.get(kind, 0),
        "ctrlDeps": fields.get("ctrlDeps"),
        "data_deps": fields.get("dataDeps"),
        "start": fields.get("startTimeMicros"),
        "runtime": fields.get("durationMicros"),
        "values": inputs.get("values") if isinstance(inputs, dict) else None,
        **dict(_attributes(attributes if isinstance(attributes, list) else [])),
    }


def _attributes(listed: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for attribute in listed:
        if isinstance(attribute, dict):
            value = next((attribute[key] for key in attribute if key.endswith("Val")), attribute.get("value"))
            yield text(attribute.get("name")), value


def _graph_node(fields: Mapping[str, Any]) -> Node:
    return Node(
        number=_required(fields.get("Id")),
        name=text(fields.get("Name"), most=MAX_NAME),
        kind=_kind(whole(fields.get("NodeType")) or 0),
        parents=_numbers(fields.get("ctrlDeps")),
        inputs=_numbers(fields.get("data_deps")),
        start_us=_time(whole(fields.get("start")) or 0),
        duration_us=_time(whole(fields.get("runtime")) or 0),
        attributes={name: _value(value) for name, value in fields.items()},
        values=text(fields.get("values"), most=2**20),
    )


def _host_node(fields: Mapping[str, Any]) -> Node:
    """A node of PyTorch's execution trace. The linker adds times, and the operations of the device (``cat``)."""
    attributes = fields.get("attrs")
    inputs = fields.get("inputs")
    on_device = "cat" in fields
    name = text(fields.get("name"), most=MAX_NAME)
    values = inputs.get("values") if isinstance(inputs, dict) else None
    return Node(
        number=_required(fields.get("id")),
        name=name,
        kind="collective" if on_device and "nccl" in name[:32].lower() else "compute",
        parents=_numbers(fields.get("ctrl_deps")),
        start_us=_time_of(fields.get("ts")),
        duration_us=_time_of(fields.get("exclusive_dur" if on_device else "inclusive_dur")),
        attributes={
            **dict(_attributes(attributes if isinstance(attributes, list) else [])),
            "is_cpu_op": not on_device,
            "stream": _value(fields.get("stream")),
            "pg_name": _value(fields.get("pg_name")),
        },
        values=text(values[0], most=2**20) if isinstance(values, list) and values else "",
    )


def _value(value: Any) -> Any:
    return text(value) if isinstance(value, str) else value if isinstance(value, int) else None


def _required(value: Any) -> int:
    number = whole(value)
    if number is None:
        raise ValueError(f"a node has the id {str(value)[:40]}")
    return number


def _numbers(value: Any) -> list[int]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return [number for item in listed if (number := whole(item)) is not None]


def _kind(code: int) -> str:
    return KINDS[code] if 0 <= code < len(KINDS) else KINDS[0]


def _time_of(value: Any) -> int:
    """Whole microseconds of a value that may have a fraction; 0 if it is not a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _time(int(value)) if is_number else 0


def _time(value: int) -> int:
    if not 0 <= value <= MAX_US:
        raise ValueError(f"a time of {value} microseconds")
    return value
