"""Converts dataclasses to JSON and back, for messages between processes and for files."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from telemetry.errors import UsageError
from telemetry.plain_errors import in_plain_words

Record = TypeVar("Record")


def encode(record: object) -> bytes:
    """A record as JSON."""
    return _adapter(type(record)).dump_json(record)


def decode(kind: type[Record], content: bytes) -> Record:
    """The record in ``content``, which :func:`encode` wrote.

    Raises:
        UsageError: ``content`` is no record of this kind.
    """
    try:
        found: Record = _adapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        words = f"{place}: {in_plain_words(first['msg'])}" if place else f"it {in_plain_words(first['msg'])}"
        raise UsageError(f"not a valid {_name_of(kind)}: {words}", hint="use the same version on all nodes") from error
    return found


def _name_of(kind: Any) -> str:
    """The name of a type for messages: ``check report`` for ``CheckReport``, ``list of part`` for ``list[Part]``."""
    if of := get_args(kind):
        return f"{_name_of(get_origin(kind))} of {', '.join(map(_name_of, of))}"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
