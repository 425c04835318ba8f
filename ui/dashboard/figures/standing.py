"""The state of a rank, as a word, a symbol and a colour. Each of the three is unambiguous alone.

Colour-blind people can distinguish the colours (Okabe and Ito's, different in lightness), on white and on black.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from diagnose.hang.evidence import Process
from diagnose.hang.verdict import HangVerdict, State
from ui.dashboard.figures.style import ON_DARK, ON_LIGHT


class Standing(StrEnum):
    """The states of a verdict over a hang, and those of the ranks of a run that moves."""

    BEHIND = "behind"
    DEAD = "dead"
    SUSPECT = "suspect"
    WAITING = "waiting"
    MISSING = "missing"
    UNKNOWN = "unknown"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """How a standing is shown."""

    symbol: str
    colour: str
    ink: str
    """Of text on the colour."""
    marker: str
    """plotly's name of the symbol, for cells too small for text."""
    means: str


SIGNS: Mapping[Standing, Sign] = {
    Standing.BEHIND: Sign(
        symbol="▶", colour="#d55e00", ink=ON_DARK, marker="triangle-right", means="delays other ranks: start here"
    ),
    Standing.DEAD: Sign(symbol="✕", colour="#6a1b6e", ink=ON_DARK, marker="x", means="the process is lost"),
    Standing.SUSPECT: Sign(
        symbol="▲", colour="#f08c00", ink=ON_LIGHT, marker="triangle-up", means="named by a finding: slow or faulty"
    ),
    Standing.WAITING: Sign(symbol="⋯", colour="#8fc7ee", ink=ON_LIGHT, marker="circle", means="waits for another rank"),
    Standing.MISSING: Sign(
        symbol="?", colour="#f0d43a", ink=ON_LIGHT, marker="diamond", means="no evidence from this rank"
    ),
    Standing.UNKNOWN: Sign(
        symbol="·",
        colour="#a9b0b7",
        ink=ON_LIGHT,
        marker="circle-open",
        means="the evidence shows neither a late rank nor a waiting rank",
    ),
    Standing.RUNNING: Sign(symbol="✓", colour="#3fae8c", ink=ON_LIGHT, marker="circle", means="completes steps"),
    Standing.ENDED: Sign(symbol="■", colour="#6f8fa8", ink=ON_LIGHT, marker="square", means="ended normally"),
}
REMARKABLE = (Standing.BEHIND, Standing.DEAD, Standing.SUSPECT, Standing.MISSING)
"""What must not be overlooked among thousands."""


def standing_of(verdict: HangVerdict, rank: int) -> Standing:
    """How a rank stands; of one the verdict does not know, that nothing is known."""
    state = verdict.states.get(rank, State.UNKNOWN)
    known = verdict.evidence.ranks.get(rank)
    if verdict.kind is None and state is State.UNKNOWN and known is not None and known.process is Process.ALIVE:
        return Standing.RUNNING
    return Standing(state.value)
