"""The bytes of OTLP/HTTP: decodes request bodies and encodes answers.

    body --decompressed, within a limit--> protobuf | JSON --> request message
    answer message | status and text --> protobuf | JSON, as in the request

In OTLP's JSON, trace and span ids are hexadecimal. Protobuf's own mapping reads every ``bytes`` field as base64, so the
ids are rewritten on arrival. Answers contain no ids.
"""

import base64
import json
import zlib
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status

from telemetry.errors import UsageError

PROTOBUF_TYPE = "application/x-protobuf"
JSON_TYPE = "application/json"
TYPES = (PROTOBUF_TYPE, JSON_TYPE)

_WBITS = {"gzip": 31, "deflate": 15}
"""Content-Encoding -> the framing that zlib expects."""
MAX_OBJECTS = 500_000
"""Largest number of objects in one JSON document. An empty object takes three bytes there, and hundreds in memory."""
_ID_FIELDS = ("traceId", "spanId", "parentSpanId")
_RPC_CODES = {400: 3, 413: 8, 415: 3, 429: 8, 501: 12, 503: 14}
"""HTTP status -> google.rpc.Code."""

_BAD_MESSAGE = (
    *(DecodeError, json_format.ParseError, RecursionError),
    *(ValueError, TypeError, AttributeError, OverflowError, SystemError),
)
"""Errors of the parser, and of its conversions of unusual values: infinity for an integer is an OverflowError, a broken
surrogate in a name a SystemError."""

Request = TypeVar("Request", bound=Message)


class TooBigError(Exception):
    """The body is larger than this collector accepts, before or after decompression."""


class UnknownEncodingError(Exception):
    """This collector does not support the content type or encoding of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The format of a body: ``content_type`` is one of ``TYPES``, ``packing`` a Content-Encoding or empty."""

    content_type: str
    packing: str = ""


def encoding_of(content_type: str, packing: str) -> Encoding:
    """The encoding that the two headers of a request state.

    A page in a browser can send any bytes to loopback, but not with these types.

    Raises:
        UnknownEncodingError: a header has a value that is not supported.
    """
    kind, packed = content_type.partition(";")[0].strip().lower(), packing.strip().lower()
    if kind not in TYPES:
        raise UnknownEncodingError(f"send Content-Type: {' or '.join(TYPES)}")
    if packed not in ("", "identity", *_WBITS):
        raise UnknownEncodingError(f"send Content-Encoding: {' or '.join(_WBITS)}, or none")
    return Encoding(content_type=kind, packing="" if packed == "identity" else packed)


def decode(body: bytes, encoding: Encoding, kind: type[Request], *, limit_bytes: int) -> Request:
    """The message of a body. At most ``limit_bytes`` are decompressed.

    Raises:
        TooBigError: the decompressed body is larger.
        UsageError: the body is not a message of this kind.
    """
    plain = unpacked(body, encoding.packing, limit_bytes) if encoding.packing else body
    message: Request = kind()
    try:
        if encoding.content_type == PROTOBUF_TYPE:
            message.ParseFromString(plain)
        else:
            json_format.ParseDict(_read_json(plain), message, ignore_unknown_fields=True)
    except _BAD_MESSAGE as error:
        text = " ".join(str(error).split())[:200]
        raise UsageError(f"not an OTLP request: {text}", hint=f"the body must be a {kind.__name__}") from error
    return message


def unpacked(body: bytes, packing: str, limit_bytes: int) -> bytes:
    """The body without gzip or deflate. Decompression stops as soon as it exceeds the limit.

    Raises:
        TooBigError: more than ``limit_bytes``.
        UsageError: the body is damaged, truncated, or has trailing bytes.
    """
    unpacker = zlib.decompressobj(_WBITS[packing])
    try:
        plain = unpacker.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise UsageError(f"the body is not {packing}: {error}", hint="send the complete body again") from error
    if len(plain) > limit_bytes:
        raise TooBigError(f"the body has more than {limit_bytes} bytes after decompression")
    if not unpacker.eof or unpacker.unused_data:
        raise UsageError(
            f"the {packing} body is truncated or has trailing bytes", hint=f"send one complete {packing} stream"
        )
    return plain


def encode(message: Message, encoding: Encoding) -> bytes:
    """An answer in the format of its request."""
    if encoding.content_type == JSON_TYPE:
        return str(json_format.MessageToJson(message, indent=None)).encode()
    body: bytes = message.SerializeToString()
    return body


def refusal(status: int, reason: str, encoding: Encoding) -> bytes:
    """The body of an error response: a ``google.rpc.Status``."""
    return encode(Status(code=_RPC_CODES.get(status, 2), message=reason), encoding)


def _read_json(body: bytes) -> dict[str, Any]:
    """Parse JSON with a limit of the number of objects, and convert hexadecimal ids to base64."""
    numbers = count(1)

    def convert(fields: dict[str, Any]) -> dict[str, Any]:
        if next(numbers) > MAX_OBJECTS:
            raise TooBigError(f"the body has more than {MAX_OBJECTS} JSON objects")
        for name in _ID_FIELDS:
            if name in fields:
                fields[name] = base64.b64encode(bytes.fromhex(fields[name])).decode()
        return fields

    fields = json.loads(body, object_hook=convert)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields
