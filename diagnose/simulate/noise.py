"""Random variation of durations, as in real runs.

    factor = per_rank[rank] * per_step[step] * per_rank_step[step, rank] * operation[step, rank, operation]

Standard deviations, measured on the published trace ST (arXiv 2505.05713; 1,024 forwards and as many backwards of 8
ranks in 32 steps):

    between ranks of a pipeline stage    0.1 to 0.6%, constant over the run
    between steps                        1%; the first steps of the job are 5% shorter
    of a rank between steps              0.8%
    of an operation                      1.3 to 1.6%, with a kurtosis of 6 (t-distribution of six degrees of freedom)
    gathers of parameters                5%
    reductions of gradients              14%

On a CPU that ranks share, the wall time of equal work varies by a factor of two. The processor time does not.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.simulate.scene import Floats
from telemetry.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Amounts of variation: standard deviations of the logarithm, unless stated otherwise."""

    rank_spread: float = 0.005
    """Variation between ranks, constant over the run."""
    step_spread: float = 0.01
    """Variation between steps, the same for all ranks."""
    rank_step_spread: float = 0.008
    """Variation of each rank between steps."""
    jitter: float = 0.015
    """Variation of a single compute."""
    tail_degrees: float = 6.0
    """Degrees of freedom of the t-distribution of ``jitter``. Fewer degrees give more very large values."""
    gather_spread: float = 0.05
    reduce_spread: float = 0.14
    transfer_spread: float = 0.1
    """Variation of a transfer between two pipeline ranks, and of a collective inside a tensor-parallel group."""
    wall_spread: float = 0.0
    """For a compute on a shared CPU: mean of (wall time - processor time) / processor time."""


RECORDED = Noise()
ON_CPU = Noise(wall_spread=0.4)
HEAVY = Noise(
    rank_spread=0.01,
    step_spread=0.04,
    rank_step_spread=0.04,
    jitter=0.08,
    tail_degrees=3.0,
    gather_spread=0.3,
    reduce_spread=0.4,
    transfer_spread=0.5,
)
HEAVY_ON_CPU = Noise(**{name: getattr(HEAVY, name) for name in Noise.__slots__} | {"wall_spread": 1.0})
SILENT = Noise(
    rank_spread=0.0,
    step_spread=0.0,
    rank_step_spread=0.0,
    jitter=0.0,
    gather_spread=0.0,
    reduce_spread=0.0,
    transfer_spread=0.0,
)
_BY_NAME = {
    ("none", False): SILENT,
    ("none", True): SILENT,
    ("recorded", False): RECORDED,
    ("recorded", True): ON_CPU,
    ("heavy", False): HEAVY,
    ("heavy", True): HEAVY_ON_CPU,
}
NAMES = ("none", "recorded", "heavy")


def noise_named(name: str, *, on_cpu: bool) -> Noise:
    """The noise for a value of ``--noise``.

    Raises:
        UsageError: the name is unknown.
    """
    if name not in NAMES:
        raise UsageError(f"unknown noise {name!r}", hint=f"use one of {', '.join(NAMES)}")
    return _BY_NAME[name, on_cpu]


LONGEST = 3.0
"""Largest logarithm of a factor: no factor is larger than about 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Random factors of a run. Each depends only on the seed and on its number, so a fault does not change them."""

    noise: Noise
    seed: int

    def ranks(self, num_steps: int, num_ranks: int) -> Floats:
        """Factor on all computes of a rank in a step, [steps, ranks]."""
        random = self._random(0)
        per_rank = random.normal(0.0, self.noise.rank_spread, num_ranks)
        per_step = random.normal(0.0, self.noise.step_spread, (num_steps, 1))
        per_rank_step = random.normal(0.0, self.noise.rank_step_spread, (num_steps, num_ranks))
        return np.exp(per_rank + per_step + per_rank_step)

    def compute(self, key: int, shape: tuple[int, ...]) -> Floats:
        """Factor on the compute time of one operation."""
        degrees = self.noise.tail_degrees
        scale = self.noise.jitter * np.sqrt((degrees - 2) / degrees)
        drawn = self._random(1, key).standard_t(degrees, shape) * scale
        return np.asarray(np.exp(np.clip(drawn, -LONGEST, LONGEST)))

    def wall(self, key: int, shape: tuple[int, ...]) -> Floats:
        """Wall time / processor time of one operation; at least 1."""
        return np.asarray(1.0 + self._random(2, key).exponential(self.noise.wall_spread, shape))

    def transfer(self, key: int, shape: tuple[int, ...], spread: float) -> Floats:
        """Factor on one transfer."""
        return np.asarray(np.exp(self._random(3, key).normal(0.0, spread, shape)))

    def of(self, what: int) -> np.random.Generator:
        """A random generator for another purpose, which has the number ``what``."""
        return self._random(4, what)

    def _random(self, *name: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *name])
