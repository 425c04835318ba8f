"""When to checkpoint, decided by all ranks together.

After each step every rank adds six numbers to the sum over all ranks that clips the gradients:

    busy      1 if its last checkpoint is not written yet
    failed    1 if its last checkpoint could not be written
    ended     1 if it was asked to end (SIGTERM)
    cost_s    seconds that its last snapshot took
    step_s    mean seconds of its last steps
    sending   1 if its last replica is not sent yet

So the decision is the same on all ranks, and needs no further collective.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from trainer.config import CheckpointConfig

READ_EVERY_S = 2.0
MOST_STEPS = 16


class Signals(NamedTuple):
    """The six numbers of one rank, or their sums over all ranks."""

    busy: float = 0.0
    failed: float = 0.0
    ended: float = 0.0
    cost_s: float = 0.0
    step_s: float = 0.0
    sending: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all ranks do after a step."""

    snapshot: bool
    end: bool
    """Whether training ends when the snapshot is written."""
    abandon: bool
    """Whether to abandon the last checkpoint, because a rank could not write its part."""
    steps_to_next: int = 1
    """The next decision is read after this many steps, or when a snapshot is due, because a GPU waits for the host when
    a decision is read."""


class Schedule:
    """Decides when a snapshot is due: after a fixed number of steps, or at the interval that costs the least time.
    Every rank decides the same."""

    def __init__(self, config: CheckpointConfig, *, done: int, num_steps: int, world_size: int) -> None:
        self._config = config
        self._num_steps = num_steps
        self._world_size = world_size
        self._last = done
        """Steps that were done at the newest snapshot."""
        self._every = config.every or 1

    def due(self, done: int) -> bool:
        """Whether a snapshot is due when ``done`` steps are done."""
        return done - self._last >= self._every or done == self._num_steps

    def decide(self, done: int, totals: Signals) -> Decision:
        """What to do when ``done`` steps are done. ``totals``: the sum over all ranks."""
        if not self._config.every and totals.step_s > 0:
            self._every = paying_interval(
                totals.cost_s / self._world_size,
                step_s=totals.step_s / self._world_size,
                failure_every_s=self._config.failure_every_s,
            )
        end = totals.ended > 0
        last = done == self._num_steps
        snapshot = end or last or (self.due(done) and not totals.busy)
        if snapshot:
            self._last = done
        return Decision(
            snapshot=snapshot,
            end=end,
            abandon=totals.failed > 0,
            steps_to_next=steps_within(READ_EVERY_S, step_s=totals.step_s / self._world_size),
        )


def steps_within(seconds: float, *, step_s: float) -> int:
    """Steps that take about ``seconds``: at least 1, at most ``MOST_STEPS``. 1 if the time of a step is unknown."""
    return max(1, min(MOST_STEPS, round(seconds / step_s))) if step_s > 0 else 1


def paying_interval(cost_s: float, *, step_s: float, failure_every_s: float) -> int:
    """Steps between checkpoints that cost the least time in all (Young 1974; Daly 2006, first order).

    A checkpoint costs ``cost_s`` of training. A failure comes every ``failure_every_s`` and costs half of an interval.
    The sum is least at an interval of ``sqrt(2 cost_s failure_every_s)`` seconds.
    """
    return max(1, round(math.sqrt(2 * cost_s * failure_every_s) / step_s))
