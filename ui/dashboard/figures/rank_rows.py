"""Which ranks a heat map shows, and in which order.

    only="dp1 pp0-1 gpu-00"    ranks with dp1, on the pipeline stages 0 and 1, on hosts whose name contains "gpu-00"
    only="dp1 dp3 8-15"        ranks 8 to 15 with dp1 or dp3

Words of one kind (one axis, ranks, hosts, roles) are alternatives. Words of several kinds must all match.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from telemetry.errors import UsageError
from telemetry.topology import Topology
from ui.dashboard.records import Floats, Ints
from ui.dashboard.view_state import RowOrder

Matches = npt.NDArray[np.bool_]
_WORD = re.compile(r"([a-z_]*)([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
"""The name of an axis (empty for the number of a rank), an index, and the last index of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRanks:
    """The ranks that a heat map shows."""

    ranks: Ints
    """In the order of the rows, from the top."""
    matching: Ints
    """The ranks that the filter allows, ascending. ``ranks`` has fewer of them if ``top`` is set."""
    hidden_suspects: tuple[int, ...]
    """Suspects that the filter leaves out, ascending."""


def matching_ranks(only: str, topology: Topology, hosts: Sequence[str], roles: Sequence[str] = ()) -> Ints:
    """The ranks that a filter allows, ascending. An empty filter allows all ranks. ``hosts`` and ``roles``: those of
    each rank.

    Raises:
        UsageError: no rank matches.
    """
    allowed: dict[str, Matches] = {}
    for word in only.replace(",", " ").split():
        kind, matches = _matches(word, topology, hosts, roles)
        if not matches.any():
            raise UsageError(f"No rank matches {word}", hint=_hint(topology))
        allowed[kind] = allowed[kind] | matches if kind in allowed else matches
    found = np.flatnonzero(np.logical_and.reduce([np.ones(topology.world_size, dtype=bool), *allowed.values()]))
    if not len(found):
        raise UsageError(f"No rank matches the whole filter: {only}", hint=_hint(topology))
    return found


def shown_ranks(
    value: Floats, matching: Ints, *, order: RowOrder, top: int | None, suspects: Sequence[int]
) -> ShownRanks:
    """The rows of a heat map.

    Args:
        value: the value of each rank, [ranks]. NaN if unknown, which counts as lower than every known value.
        matching: the ranks that the filter allows, ascending.
        order: by rank, or the highest value first. Ranks with equal values are in the order of their numbers.
        top: show only this number of ranks with the highest values, and all suspects. If None, show all.
        suspects: ranks that findings name.
    """
    known = np.where(np.isnan(value), -np.inf, value)[matching]
    ranks = matching[np.argsort(-known, kind="stable")]
    if top is not None:
        is_kept = np.isin(ranks, suspects)
        is_kept[:top] = True
        ranks = ranks[is_kept]
    return ShownRanks(
        ranks=ranks if order is RowOrder.VALUE else np.sort(ranks),
        matching=matching,
        hidden_suspects=tuple(np.setdiff1d(np.array(suspects, dtype=np.int64), matching).tolist()),
    )


def _matches(word: str, topology: Topology, hosts: Sequence[str], roles: Sequence[str]) -> tuple[str, Matches]:
    """The kind of a word, and for each rank whether the word matches it."""
    parsed = _WORD.fullmatch(word)
    index = None if parsed is None else topology.along(parsed[1]) if parsed[1] else np.arange(topology.world_size)
    if parsed is not None and index is not None:
        first = int(parsed[2])
        return parsed[1], (index >= first) & (index <= int(parsed[3] or first))
    if word in roles:
        return "role", np.array([role == word for role in roles])
    part = word.casefold()
    contains = {host: part in host.casefold() for host in set(hosts)}
    return "host", np.array([contains[host] for host in hosts], dtype=bool)


def _hint(topology: Topology) -> str:
    axes = ", ".join(f"{name}0 to {name}{degree - 1}" for name, degree in topology.mesh if degree > 1)
    examples = f"axes with an index ({axes}), " if axes else ""
    return f"use {examples}ranks such as 0-{topology.world_size - 1}, and parts of host names, with spaces between them"
