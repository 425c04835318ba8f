"""What one look at the store brought: the input of the state machine."""

from dataclasses import dataclass

from diagnose.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A finding that holds at the end of the window."""

    finding: Finding
    sharp: bool
    """Whether it tells when the trouble was: it is about the newest steps alone, or names its first step. A vaguer one,
    over all of a long window, outlasts its trouble by as long as that window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """What was found in one attempt of a run."""

    run_id: str
    attempt: int
    step_s: float
    """Seconds a step takes; 0: not known."""
    sightings: tuple[Sighting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look. A run that is ``known``, but neither in ``runs`` nor in ``failed``, is over: it ended, or a newer one
    runs."""

    now_ns: int
    runs: tuple[RunSeen, ...] = ()
    failed: frozenset[tuple[str, int]] = frozenset()
    """Runs that could not be looked at: their alerts stand still."""
    known: frozenset[tuple[str, int]] | None = None
    """All that the store knows of, over or not; None: whatever there is."""
    blind: bool = False
    """Nothing could be looked at: all alerts stand still."""

    def knows(self, run: tuple[str, int]) -> bool:
        return self.known is None or run in self.known
