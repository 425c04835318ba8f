"""Shared by the modules that read parts of an address: how a field is read."""

import re
from collections.abc import Callable
from typing import Protocol, TypeVar

from telemetry.annotations import is_tag

Value = TypeVar("Value")


class ReadField(Protocol):
    """Reads a field of an address: its default if it is missing or invalid."""

    def __call__(self, name: str, convert: Callable[[str], Value], default: Value) -> Value: ...


def whole_number(text: str, least: int, most: int) -> int:
    """The number in a text of up to ten digits.

    Raises:
        ValueError: ``text`` is no number between ``least`` and ``most``.
    """
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise ValueError(text)
    return int(text)


def tag_name(text: str) -> str:
    """The tag in a text.

    Raises:
        ValueError: ``text`` cannot be a tag.
    """
    if not is_tag(text):
        raise ValueError(text)
    return text
