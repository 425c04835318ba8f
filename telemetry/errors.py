"""Errors that a user of telemetry can see, as a tree.

RankscopeError                  always: what, where, and a hint
├── UsageError                  wrong value, unknown name, missing file     -> exit 2
│   ├── UnreadableError         a file or a dump that cannot be read        -> exit 2
│   ├── UnsafeFolderError       another user owns a folder or can write it  -> exit 2
│   ├── NotStoredError          the store holds no such finding or profile  -> exit 2
│   │   └── UnknownRunError     the store holds no such run                 -> exit 2
│   └── RefusedRowsError        the collector refuses rows of one run       -> exit 2
│       ├── TakenNameError      another job of that name is stored          -> exit 2
│       ├── JumpError           record numbers jump without a loss mark     -> exit 2
│       └── AheadError          stamps are more than a day in the future    -> exit 2
└── UnreachableError            store or collector does not answer          -> exit 3
    └── UnannouncedError        the rank must be announced first            -> exit 3
"""

import copyreg
import errno
from typing import Any

from telemetry.printable import printable


class RankscopeError(Exception):
    """A fault the user can do something about.

    ``str(error)`` is the message, a blank line, then ``hint: what to do next``. Both are one line that can be printed.
    """

    exit_status = 2

    def __init__(self, message: str, *, hint: str) -> None:
        self.message = printable(message)
        self.hint = printable(hint)
        super().__init__(f"{self.message}\n\nhint: {self.hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors are sent between ranks, so they can be pickled."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}"


class UsageError(RankscopeError):
    """A wrong value, an unknown name, a missing file."""


class UnreadableError(UsageError):
    """A file, segment or dump that exists and cannot be read."""


class UnsafeFolderError(UsageError, PermissionError):
    """A folder for private files that another user owns or can write into."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.errno, self.strerror = errno.EPERM, message

    def __reduce__(self) -> tuple[Any, ...]:
        """Add the attributes that OSError keeps outside of ``__dict__``."""
        make, args, state = super().__reduce__()
        return make, args, state | {"args": self.args, "errno": self.errno, "strerror": self.strerror}


class NotStoredError(UsageError):
    """The store holds no such finding, or no such profile."""


class UnknownRunError(NotStoredError):
    """The store holds no run of that name."""


class RefusedRowsError(UsageError):
    """The collector refuses these rows permanently. Rows of other runs are not affected."""


class TakenNameError(RefusedRowsError):
    """Another job is stored under the name of a run."""


class JumpError(RefusedRowsError):
    """The numbers of a rank's records jump, and no mark reports the records in between as lost."""

    def __init__(self, message: str, *, hint: str, stored: dict[int, int]) -> None:
        super().__init__(message, hint=hint)
        self.stored = stored
        """Rank -> one past the last stored number."""


class AheadError(RefusedRowsError):
    """Rows are stamped more than a day ahead of the collector's clock. They can be stored later."""


class UnreachableError(RankscopeError):
    """The store or the collector does not answer."""

    exit_status = 3

    def __init__(self, message: str, *, hint: str, retry_after_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s
        """Seconds to wait before a retry, if the answer states them."""


class UnannouncedError(UnreachableError):
    """The collector does not know the folder that these rows come from: announce the rank, then send them again."""
