"""Step times under assumptions: each slot as it was, or as if nobody were slow there.

An assumption about slots holds in all lanes. An assumption about one dp replica needs no more than two of them: the
replica as it was, and any of the others, which are all alike once they are ideal.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Bools
from diagnose.whatif.program import Program
from diagnose.whatif.replay import Lane, replay
from diagnose.whatif.slots import Lanes

StepSeconds = npt.NDArray[np.float64]
"""[assumptions, steps]."""

CACHED = 65_536
"""Values of one slot that are computed on at a time: half a megabyte stays in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """A program with its slots' own times, and their ideal."""

    program: Program
    own_s: Lanes
    ideal_s: npt.NDArray[np.float64]

    @property
    def num_steps(self) -> int:
        return int(self.own_s.shape[1])

    @property
    def num_dp(self) -> int:
        return int(self.own_s.shape[2])

    def keeping(self, kept: Bools) -> StepSeconds:
        """Step times when only ``kept`` [assumptions, slots] stays as it was and all else is ideal."""
        return _in_batches(self._keep, kept, int(np.prod(self.own_s.shape[1:])))

    def _keep(self, kept: Bools) -> StepSeconds:
        def durations(slot: int) -> Lane:
            mine = kept[:, slot]
            if mine.all():
                return np.asarray(self.own_s[slot][None])
            if not mine.any():
                return np.full((1, 1, 1, 1), self.ideal_s[slot])
            return np.asarray(np.where(mine[:, None, None, None], self.own_s[slot][None], self.ideal_s[slot]))

        return np.broadcast_to(replay(self.program, durations), (len(kept), self.num_steps))

    def keeping_replica(self) -> StepSeconds:
        """Step times when only one dp replica stays as it was: [dp, steps]."""
        return _in_batches(self._keep_replicas, np.arange(self.num_dp), 2 * self.num_steps * self.own_s.shape[3])

    def _keep_replicas(self, replicas: npt.NDArray[np.int64]) -> StepSeconds:
        def durations(slot: int) -> Lane:
            as_it_was = self.own_s[slot][:, replicas].transpose(1, 0, 2)[:, :, None, :]
            if self.num_dp == 1:
                return np.asarray(as_it_was)
            return np.concatenate([as_it_was, np.full_like(as_it_was, self.ideal_s[slot])], axis=2)

        return np.broadcast_to(replay(self.program, durations), (len(replicas), self.num_steps))

    def fixing(self, where: Bools) -> StepSeconds:
        """Step times with ideal times ``where`` [slots, dp], all else as it was: [1, steps]."""

        def durations(slot: int) -> Lane:
            return np.asarray(np.where(where[slot][:, None], self.ideal_s[slot], self.own_s[slot])[None])

        return np.broadcast_to(replay(self.program, durations), (1, self.num_steps))

    def with_times(self, own_s: Lanes) -> StepSeconds:
        """Step times with other times in place of the slots' own: [1, steps]."""
        return np.broadcast_to(replay(self.program, lambda slot: np.asarray(own_s[slot][None])), (1, self.num_steps))


def _in_batches(run: Callable[[Any], StepSeconds], items: npt.NDArray[Any], values_each: int) -> StepSeconds:
    size = max(1, CACHED // max(values_each, 1))
    return np.concatenate([run(items[first : first + size]) for first in range(0, len(items), size)])
