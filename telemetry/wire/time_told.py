"""What a collector answers when it is asked for the time."""

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTold:
    """The answer of ``GET /v1/clock``; wall clock of the collector, nanoseconds since the epoch."""

    collector: str
    """Several may answer at one address: each has a clock of its own."""
    received_ns: int
    """When the question came in."""
    answered_ns: int
    """When the answer went out."""

    @classmethod
    def of(cls, answer: Any) -> Self:
        """From JSON.

        Raises:
            ValueError: it is none of that.
        """
        try:
            told = cls(
                collector=str(answer["collector"]),
                received_ns=int(answer["received_ns"]),
                answered_ns=int(answer["answered_ns"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no time in {str(answer)[:100]}") from error
        if not 0 <= told.received_ns <= told.answered_ns < 2**62:
            raise ValueError(f"received at {told.received_ns}, answered at {told.answered_ns}")
        return told
