"""Labels of a run: names and values that a user gives it. They are stored in the ``meta`` of its ranks.

--label team=search --label note="larger batch"     meta: {"label.team": "search", "label.note": "larger batch", ...}
"""

import re
from collections.abc import Iterable, Mapping

from telemetry.errors import UsageError
from telemetry.printable import printable

PREFIX = "label."
MAX_VALUE_LENGTH = 200
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
HINT = (
    "use NAME=VALUE: a name of lower-case letters, digits, - and _, "
    f"and a value of at most {MAX_VALUE_LENGTH} characters"
)


def label_meta(labels: Iterable[str]) -> dict[str, str]:
    """Labels, each ``NAME=VALUE``, as entries of ``meta``.

    Raises:
        UsageError: a text is not a label, or two labels have the same name.
    """
    meta: dict[str, str] = {}
    for label in labels:
        name, separator, value = label.partition("=")
        if not (separator and _NAME.fullmatch(name) and value.isprintable() and len(value) <= MAX_VALUE_LENGTH):
            raise UsageError(f"{printable(label[:60])!r} is not a label", hint=HINT)
        if PREFIX + name in meta:
            raise UsageError(f"label {name} is given twice", hint="give each label once")
        meta[PREFIX + name] = value
    return meta


def labels_in(meta: Mapping[str, str]) -> dict[str, str]:
    """The labels in the ``meta`` of a rank."""
    return {key.removeprefix(PREFIX): value for key, value in meta.items() if key.startswith(PREFIX)}
