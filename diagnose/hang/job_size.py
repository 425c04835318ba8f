"""The number of ranks of a job whose evidence does not show it for certain."""

from telemetry.errors import UsageError
from telemetry.topology import MAX_RANKS

MOST_MISSING = 64


def plausible_size(size: int, num_seen: int) -> int:
    """``size``, or 0 if it is more than ``MOST_MISSING`` times the number of ranks that left evidence."""
    return size if size <= MOST_MISSING * max(num_seen, 1) else 0


def check_num_ranks(num_ranks: int, named: int, source: str) -> None:
    """Check a number of ranks that the user gave. ``named``: one more than the highest rank that the source names.

    Raises:
        UsageError: a job of ``num_ranks`` ranks does not have that rank, or is too large.
    """
    if named > num_ranks:
        raise UsageError(
            f"the {source} names rank {named - 1}, so the job has more than {num_ranks} ranks",
            hint="give --world-size the number of ranks of the whole job",
        )
    if num_ranks > MAX_RANKS:
        raise UsageError(f"a job has at most {MAX_RANKS:,} ranks", hint=f"use --world-size 1 to {MAX_RANKS}")
