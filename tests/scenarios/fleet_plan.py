"""The network disturbance of each trial, drawn from a seed."""

import random
from dataclasses import dataclass, replace

NUM_HOSTS = 4
LENGTHS_S = (0.5, 3.0, 8.0)
RATES = ("10mbit", "5mbit")
SETTLE_STEPS = 8
"""Steps before the first disturbance."""
BETWEEN_STEPS = 4
STEPS_TO_ALERT = 25
"""Steps until the alert is sent."""
SLOW_STEP = 15
SLOW_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One job and its disturbance."""

    number: int
    kind: str
    host: int
    flaps_s: tuple[float, ...] = ()
    """How long the link of ``host`` is down, each time."""
    rate: str = ""
    """The rate limit of its link."""
    fault: str = "none"
    """The fault inside the trainer."""
    watched: bool = False
    """Whether the job runs until the alert is sent."""
    phase_s: float = 0.0
    """Delay after the start of a step."""

    @property
    def name(self) -> str:
        what = " ".join(f"{one:g}s" for one in self.flaps_s) or self.rate or self.fault
        return f"{self.number:02d} {self.kind} host-{self.host} {what}"

    @property
    def num_steps(self) -> int:
        if self.kind in ("permanent link loss", "stalled rank"):
            return 5_000
        if self.rate or self.fault != "none":
            return SLOW_STEPS
        alert_steps = STEPS_TO_ALERT if self.watched and len(self.flaps_s) > 1 else 0
        return SETTLE_STEPS + 12 + (BETWEEN_STEPS + 2) * len(self.flaps_s) + alert_steps


KINDS = ("healthy", "one flap", "three flaps", "permanent link loss", "slow link", "stalled rank", "slow rank")
ALERTED = {
    "three flaps": "nic-flap",
    "permanent link loss": "nic-flap",
    "stalled rank": "hung-collective",
    "slow rank": "compute-straggler",
}
"""Kind of the expected alert, by kind of trial."""


def plan(seed: int, *, flaps: int = 30, healthy: int = 10, cuts: int = 4, slow: int = 6) -> list[Trial]:
    """Trials for the verdicts: ``flaps`` jobs with one or three flaps, and the other kinds."""
    kinds = ["one flap", "three flaps"] * (flaps // 2) + ["healthy"] * healthy + ["permanent link loss"] * cuts
    return _drawn(random.Random(seed), kinds + ["slow link"] * slow, watched=False)


def alert_plan(seed: int, *, each: int = 3) -> list[Trial]:
    """Trials that time the watcher."""
    return _drawn(random.Random(seed), [kind for kind in ALERTED for _ in range(each)], watched=True)


def _drawn(draw: random.Random, kinds: list[str], *, watched: bool) -> list[Trial]:
    trials = []
    for number, kind in enumerate(kinds):
        length_s = LENGTHS_S[kinds[:number].count(kind) % len(LENGTHS_S)]
        trials.append(replace(_trial(number, kind, length_s, draw), watched=watched))
    draw.shuffle(trials)
    return trials


def _trial(number: int, kind: str, length_s: float, draw: random.Random) -> Trial:
    host = draw.randrange(NUM_HOSTS)
    common = {"number": number, "kind": kind, "host": host, "phase_s": round(draw.uniform(0.0, 0.4), 3)}
    rank = 2 * host + draw.randrange(2)
    match kind:
        case "one flap":
            return Trial(**common, flaps_s=(length_s,))  # type: ignore[arg-type]
        case "three flaps":
            return Trial(**common, flaps_s=(length_s,) * 3)  # type: ignore[arg-type]
        case "slow link":
            return Trial(**common, rate=draw.choice(RATES))  # type: ignore[arg-type]
        case "stalled rank":
            return Trial(**common, fault=f"hang:rank={rank},step=15")  # type: ignore[arg-type]
        case "slow rank":
            return Trial(**common, fault=f"slow:rank={rank},factor=3,first_step=15")  # type: ignore[arg-type]
        case _:
            return Trial(**common)  # type: ignore[arg-type]
