"""Short texts for many ranks."""

import re
from collections.abc import Collection, Iterable, Sequence

from telemetry.errors import UsageError

_RANGE = re.compile(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", re.ASCII)
MAX_LENGTH = 40
"""Characters for ranks in a sentence."""


def fold_ranks(ranks: Iterable[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    return ", ".join("-".join(map(str, span)) for span in spans)


def named_ranks(ranks: Collection[int]) -> str:
    """``rank 5``, ``ranks 1, 5``, ``ranks 8-15``."""
    return f"rank{'s' * (len(ranks) != 1)} {fold_ranks(ranks)}"


def name_some(ranks: Collection[int]) -> str:
    """``[0, 1, 2, 5]`` as ``0-2, 5``. A longer text is shortened to ``33, 97 ... 12257: 192 ranks``."""
    folded = fold_ranks(ranks)
    if len(folded) <= MAX_LENGTH:
        return folded
    first, second, *_, last = sorted(ranks)
    return f"{first}, {second} ... {last}: {len(ranks)} ranks"


def list_some(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: the first ``most`` names, and how many follow."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unfold_ranks(text: str, num_ranks: int) -> tuple[int, ...]:
    """``0-2,5`` as ``(0, 1, 2, 5)``, ascending: the inverse of :func:`fold_ranks` in a job of ``num_ranks`` ranks.

    Raises:
        UsageError: the text has another form, or names a rank that the job does not have.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise UsageError(f"{text!r} is not a list of ranks", hint="use a form such as 0-7,12")
        first, last = int(found[1]), int(found[2] or found[1])
        if first > last:
            raise UsageError(f"ranks {part.strip()}: {first} is larger than {last}", hint="swap the two numbers")
        if last >= num_ranks:
            raise UsageError(f"there is no rank {last}", hint=f"ranks of this run are 0 to {num_ranks - 1}")
        ranks.update(range(first, last + 1))
    return tuple(sorted(ranks))
