"""Durations that scatter as those of real runs do.

    factor = lasting[rank] * common[step] * lately[step, rank] * operation[step, rank, operation]

Measured on the published trace ST (arXiv 2505.05713; 1,024 forwards and as many backwards of 8 ranks in 32 steps):
ranks of one pipeline stage differ by 0.1 to 0.6% for good; a step as a whole scatters by 1% (5% below in the job's
first steps), a rank in a step by 0.8%, an operation in that by 1.3 to 1.6% with a kurtosis of 6, which a t-distribution
of six degrees of freedom has. Gathers of parameters scatter by 5%, reductions of gradients by 14%. On a CPU that ranks
share, wall time of equal work scatters by a factor of two, processor time does not.
"""

from dataclasses import dataclass

import numpy as np

from diagnose.simulate.scene import Floats
from telemetry.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much what scatters: standard deviations of the logarithm unless said otherwise."""

    rank_spread: float = 0.005
    """Ranks differ for good."""
    step_spread: float = 0.01
    """All ranks together, from step to step."""
    rank_step_spread: float = 0.008
    jitter: float = 0.015
    """Of a single compute."""
    tail_degrees: float = 6.0
    """Degrees of freedom of the t-distribution that a compute's jitter follows: the fewer, the heavier its tail."""
    gather_spread: float = 0.05
    reduce_spread: float = 0.14
    transfer_spread: float = 0.1
    """Of a transfer between two pipeline ranks, and of a collective inside a tensor-parallel group."""
    wall_spread: float = 0.0
    """Mean share of wall time beyond processor time, of a compute on a shared CPU."""


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
    """The noise that ``--noise`` means.

    Raises:
        UsageError: no such name.
    """
    if name not in NAMES:
        raise UsageError(f"no noise {name!r}", hint=f"one of {', '.join(NAMES)}")
    return _BY_NAME[name, on_cpu]


LONGEST = 3.0
"""Of the logarithm of a factor: not even a heavy tail reaches beyond twenty times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Random factors of one run. Each is drawn from its name, so a fault changes none of them."""

    noise: Noise
    seed: int

    def ranks(self, num_steps: int, num_ranks: int) -> Floats:
        """Factor on everything that a rank computes in a step, [steps, ranks]."""
        random = self._random(0)
        lasting = random.normal(0.0, self.noise.rank_spread, num_ranks)
        common = random.normal(0.0, self.noise.step_spread, (num_steps, 1))
        lately = random.normal(0.0, self.noise.rank_step_spread, (num_steps, num_ranks))
        return np.exp(lasting + common + lately)

    def compute(self, key: int, shape: tuple[int, ...]) -> Floats:
        """Factor on the compute time of one operation."""
        degrees = self.noise.tail_degrees
        scale = self.noise.jitter * np.sqrt((degrees - 2) / degrees)
        drawn = self._random(1, key).standard_t(degrees, shape) * scale
        return np.asarray(np.exp(np.clip(drawn, -LONGEST, LONGEST)))

    def wall(self, key: int, shape: tuple[int, ...]) -> Floats:
        """Wall time for processor time, of one operation; at least one."""
        return np.asarray(1.0 + self._random(2, key).exponential(self.noise.wall_spread, shape))

    def transfer(self, key: int, shape: tuple[int, ...], spread: float) -> Floats:
        """Factor on one transfer."""
        return np.asarray(np.exp(self._random(3, key).normal(0.0, spread, shape)))

    def of(self, what: int) -> np.random.Generator:
        """A generator for something else, by its number."""
        return self._random(4, what)

    def _random(self, *name: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *name])
