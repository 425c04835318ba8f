"""A store that raises, as those hear of it who sent the rows: come back later, whatever it was."""

from telemetry.errors import UnreachableError
from telemetry.printable import log

MAX_WORDS = 300
"""Of an error, which may repeat what was sent."""


def storing_failed(error: Exception) -> UnreachableError:
    """``error`` as a sender is told of it. A fault of ours goes to the collector's log, too: it must not end the thread
    that writes, for the next rows may be fine, nor cost the sender rows that it could send again."""
    if isinstance(error, UnreachableError):
        return error
    words = f"storing failed: {type(error).__name__}: {str(error)[:MAX_WORDS]}"
    log(f"rankscope collect: {words}")
    return UnreachableError(words, hint="the collector's log says more; nothing is lost")
