"""Names of runs: one set of characters and one limit, for ``start``, batches, imports and addresses.

    letters, digits and marks of any script, spaces within, and  . _ - : @ + = , ( ) [ ] # ~ %
    at most 200 bytes of UTF-8; no dot, dash or space in front, no space at the end

So a name is one file name, one word of a log line, and has no characters that change the reading direction. Rows that
an older version stored under other names can still be read.
"""

import hashlib
import unicodedata

from telemetry.errors import UsageError
from telemetry.printable import printable

Attempt = tuple[str, int]
"""Name of a run, and number of its attempt."""
MAX_HOST_LENGTH = 256
"""Characters of a host's name."""
MAX_ROLE_LENGTH = 32
"""Characters of a role."""


def storable(name: str) -> str:
    """``name`` as valid text. Texts from the environment or the kernel may contain invalid bytes."""
    return name.encode(errors="replace").decode()


MAX_NAME_BYTES = 200
SIGNS = frozenset("._-:@+=,()[]#~% ")
NAME_HINT = (
    "use letters, digits, spaces and . _ - : @ + = , ( ) [ ] # ~ %, with no dot, dash or space in front, "
    f"at most {MAX_NAME_BYTES} bytes"
)
_DIGEST_LENGTH = 8


def checked_run_name(name: str, *, of: str = "run") -> str:
    """``name``, if it can name a run, or a node (``of``).

    Raises:
        UsageError: it cannot.
    """
    if name != usable_run_name(name):
        raise UsageError(f"{_shown(name)} is not a valid {of} name", hint=NAME_HINT)
    return name


def usable_run_name(name: str) -> str:
    """``name``, or the nearest valid name of a run: ``_`` instead of each invalid character. A name that is too long is
    cut, and ends with a digest of the whole name."""
    usable = "".join(letter if _is_allowed(letter) else "_" for letter in name)
    usable = usable.rstrip(" ") or "_"
    if usable[0] in ".- ":
        usable = "_" + usable[1:]
    if len(usable.encode()) <= MAX_NAME_BYTES:
        return usable
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:_DIGEST_LENGTH]
    kept = usable.encode()[: MAX_NAME_BYTES - _DIGEST_LENGTH - 1].decode(errors="ignore")
    return f"{kept}-{digest}"


def _is_allowed(character: str) -> bool:
    return character in SIGNS or unicodedata.category(character)[0] in "LNM"


def _shown(name: str) -> str:
    shown = printable(name[:60])
    return f"'{shown}…' of {len(name.encode(errors='replace'))} bytes" if len(name) > 60 else f"'{shown}'"


def as_role(text: str) -> str:
    """The role in ``text``, in lower case and of limited length. Characters that are no letter, digit or one of . _ -
    become dashes. Empty if there is no role."""
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in text.strip().lower())[:MAX_ROLE_LENGTH]
