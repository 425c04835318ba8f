"""What people write about runs: tags, notes, and saved views.

    tag    a short word that a run has until it is removed: baseline
    note   a text about a run. It stays
    view   the address of a page under a name, of one run or of all runs, until it is removed

Each is a row of `annotations`, which the collector adds. For a tag or a view, the newest row of its name is valid.
"""

import re
from enum import StrEnum

from telemetry.errors import UsageError
from telemetry.printable import cut, printable
from telemetry.run_names import usable_run_name

MAX_TAG = 32
"""Largest number of characters of a tag."""
MAX_TAGS = 32
"""Largest number of tags of a run."""
MAX_VIEW_NAME = 64
MAX_VIEWS = 100
"""Largest number of saved views of a run, and also of those that belong to all runs."""
MAX_ADDRESS = 4000
"""Largest number of characters of the address of a view."""
TAG_HINT = f"use one word of letters, digits and . _ - : @ + = # ~ %, at most {MAX_TAG} characters, such as baseline"
_ADDRESS = re.compile(rf"\?[A-Za-z0-9_.~*%+=&-]{{0,{MAX_ADDRESS - 1}}}")


class Kind(StrEnum):
    """The kind of what a person writes about a run."""

    TAG = "tag"
    NOTE = "note"
    VIEW = "view"


class Edit(StrEnum):
    """A change of a tag or a view."""

    SET = "set"
    REMOVE = "remove"


def is_tag(text: str) -> bool:
    """Whether ``text`` can be a tag."""
    return len(text) <= MAX_TAG and text == usable_run_name(text) and not set(text) & set(" ,()[]")


def checked_tag(text: str) -> str:
    """``text``, if it can be a tag.

    Raises:
        UsageError: it cannot.
    """
    if not is_tag(text):
        raise UsageError(f"{cut(printable(text), MAX_TAG + 8)!r} is not a valid tag", hint=TAG_HINT)
    return text


def checked_address(text: str) -> str:
    """``text``, if it is the address of a page from its ``?`` on. So a view never leads to another host.

    Raises:
        UsageError: it is not.
    """
    if not _ADDRESS.fullmatch(text):
        raise UsageError(
            "this is not the address of a view",
            hint=f"use the part of the address from its ? on, at most {MAX_ADDRESS} characters",
        )
    return text
