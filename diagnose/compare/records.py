"""The result of a comparison: B against A."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from diagnose.compare.measures import Basis
from diagnose.findings import StepWindow
from diagnose.model.operations import Floats, Ints
from diagnose.model.view import RunView
from telemetry.stages import Stage

NS_PER_S = 1e9


class Verdict(StrEnum):
    """How B compares with A."""

    SLOWER = "slower"
    FASTER = "faster"
    NO_DIFFERENCE = "no-difference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The ratio B / A of a time."""

    ratio: float
    low: float
    """The interval from ``low`` to ``high`` contains the true ratio with 95% probability."""
    high: float
    detectable: float
    """The smallest change, as a share of A, that would have been a difference."""
    verdict: Verdict
    """A difference is beyond the bound for all tests together (``inference.py``), and at least the least change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFacts:
    """Facts about one side, for reports."""

    label: str
    run_id: str
    attempt: int
    window: StepWindow
    num_steps: int
    """Number of compared steps."""
    left_out: int
    """Settling steps and steps with a profile, which are not compared."""
    ranks: tuple[int, ...]
    """The chosen ranks. Empty: all."""
    mesh: str
    steps: Ints
    """Numbers of the compared steps."""
    step_ns: Floats
    """Step time of each of ``steps``."""
    hosts: tuple[str, ...]
    """Host of each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What to compare: steps without the settling steps, and some or all ranks."""

    view: RunView
    label: str
    """The name of the side, with its attempt."""
    ranks: tuple[int, ...] = ()
    """The chosen ranks. Empty: all."""
    left_out: int = 0
    """Number of settling steps and of steps with a profile. The view does not contain them."""

    @property
    def facts(self) -> SideFacts:
        view = self.view
        return SideFacts(
            label=self.label,
            run_id=view.run_id,
            attempt=view.attempt,
            window=view.window,
            num_steps=len(view.steps),
            left_out=self.left_out,
            ranks=self.ranks,
            mesh=str(view.topology),
            steps=view.steps,
            step_ns=view.step_ns,
            hosts=view.hosts,
        )

    def has_steps_of(self, other: "Side") -> bool:
        """Whether both are the same steps of one attempt."""
        mine, others = ((each.view.run_id, each.view.attempt) for each in (self, other))
        return mine == others and np.array_equal(self.view.steps, other.view.steps)

    def num_shared_steps(self, other: "Side") -> int:
        """Number of steps of one attempt that both sides contain."""
        mine, others = ((each.view.run_id, each.view.attempt) for each in (self, other))
        return len(np.intersect1d(self.view.steps, other.view.steps)) if mine == others else 0

    def has_ranks_of(self, other: "Side") -> bool:
        """Whether ranks of the same number have the same place in both jobs."""
        return self.view.topology == other.view.topology and self.ranks == other.ranks

    def is_same_as(self, other: "Side") -> bool:
        return self.has_steps_of(other) and self.has_ranks_of(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """A step time of both sides, in seconds."""

    a_s: float
    b_s: float
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange:
    """A stage of both sides. ``a_s`` and ``b_s`` are its time in a step that has the stage, in seconds."""

    stage: Stage
    role: str
    basis: Basis | None
    """None: the stage is measured in different ways."""
    a_s: float | None
    """None: A does not have the stage."""
    b_s: float | None
    a_share: float
    """Share of the steps that have the stage."""
    b_share: float
    change: Change | None
    """The change without the ranks that changed by themselves (``RankChange``). None: one side has the stage in too few
    steps."""
    share_of_step: float
    """Time that it adds to a step, as a share of A's step time. Negative: B saves this time."""

    @property
    def name(self) -> str:
        """The stage, with its role if it has one: ``forward-compute``, ``actor forward-compute``."""
        return f"{self.role} {self.stage.label}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """A rank whose compute time changed by more than that of the others."""

    rank: int
    role: str
    host_a: str
    host_b: str
    stages: Mapping[Stage, float]
    """Stage -> ratio B / A beyond the change of the other ranks."""
    share_of_step: float
    """Time that it adds to a step of this rank, as a share of A's step time."""
    verdict: Verdict

    @property
    def hosts(self) -> str:
        """The host of the rank in B, and that in A if it was another one: ``gpu-003``, ``gpu-003 (A: gpu-001)``."""
        now = self.host_b or "unknown"
        return now if self.host_a == self.host_b else f"{now} (A: {self.host_a or 'unknown'})"

    @property
    def worst(self) -> Stage:
        """The stage with the largest change."""
        return max(self.stages, key=lambda stage: abs(self.stages[stage] - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRatios:
    """B / A of the compute time of every rank in one stage."""

    stage: Stage
    role: str
    ranks: Ints
    ratio: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The result: B against A."""

    a: SideFacts
    b: SideFacts
    verdict: Verdict
    least_change: float
    """Changes below this share are no difference."""
    num_tests: int
    """Number of tests of stages and ranks."""
    step: StepChange | None
    """Mean step time. None: both sides are ranks of the same steps."""
    typical: StepChange | None
    """Trimmed mean step time: a few long steps do not change it. None as for ``step``."""
    stages: tuple[StageChange, ...]
    ranks: tuple[RankChange, ...]
    """The ranks that changed, the largest change first. Empty if ranks are not comparable: see ``notes``."""
    ratios: tuple[RankRatios, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def exit_status(self) -> int:
        """1 if B is slower."""
        return int(self.verdict is Verdict.SLOWER)

    def stages_that_are(self, verdict: Verdict) -> list[StageChange]:
        """The stages with this verdict. The largest share of a step comes first."""
        found = [each for each in self.stages if each.change is not None and each.change.verdict is verdict]
        return sorted(found, key=lambda each: -abs(each.share_of_step))

    def ranks_that_are(self, verdict: Verdict) -> list[RankChange]:
        """The ranks with this verdict. The largest change comes first."""
        return [each for each in self.ranks if each.verdict is verdict]
