"""A deadlock among ranks that all wait for one another: who left a collective out.

Ranks of one pipeline stage run one program (so the topology must be known), and go through their groups in one order. A
rank that is as far as a witness in one group, and behind it in another that the witness entered *earlier*, has left an
operation out:

    witness   tp #7   then   dp #3
    rank      tp #6          dp #3        it entered dp #3 without tp #7
"""

from collections.abc import Collection

import numpy as np

from diagnose.hang.evidence import Front, HangEvidence, RankEvidence

_Fronts = dict[str, Front]
LEAST_WITNESSES = 2
"""One alone may be the one that left something out."""


def find_left_out(evidence: HangEvidence, among: Collection[int]) -> dict[int, str]:
    """Ranks of ``among`` that left an operation out, each with the name of the group it is missing in."""
    fronts = {rank: _by_name(evidence, one) for rank, one in evidence.ranks.items()}
    found: dict[int, str] = {}
    for rank in among:
        witnesses = [fronts[other] for other in _same_program(evidence, rank) if other in fronts]
        names = [name for one in witnesses if (name := _left_out(fronts[rank], one))]
        if len(names) >= LEAST_WITNESSES:
            found[rank] = names[0]
    return found


def _by_name(evidence: HangEvidence, one: RankEvidence) -> _Fronts:
    """A rank is in one group of each name: its tp group, its dp group."""
    return {evidence.groups[index].name: front for index, front in one.fronts.items()}


def _same_program(evidence: HangEvidence, rank: int) -> list[int]:
    topology = evidence.topology
    if topology is None:
        return []
    alike = np.flatnonzero(topology.index["pp"] == topology.index["pp"][rank])
    return [other for other in alike.tolist() if other != rank]


def _left_out(mine: _Fronts, witness: _Fronts) -> str | None:
    for name, front in witness.items():
        own = mine.get(name)
        if own is None or own.entered >= front.entered or not front.entered_ns:
            continue
        later = [
            other
            for other, theirs in witness.items()
            if theirs.entered_ns > front.entered_ns and other in mine and mine[other].entered >= theirs.entered
        ]
        if later:
            return name
    return None
