"""Compare two sides: is B slower than A, by how much, in which stages, and on which ranks.

    views --measures--> times of stages --changes--> step time, stages, ranks --bounds for all tests--> verdict

B is slower if its step time is longer than that of A by more than noise and by at least the least change. B is also
slower if a stage or a rank is slower, its change alone is at least that share of the step, and the step time confirms
it: the whole 95% interval of the step time is on the same side. This second test needs no stricter bound, because it
is made only after a difference was found (Marcus, Peritz and Gabriel, Biometrika 63, 1976).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, expm1, log1p, sqrt

import numpy as np

from diagnose.compare.changes import (
    USUAL_CHANGE,
    Bound,
    PairedRanks,
    change_of_ranks,
    change_of_series,
    is_beyond,
    mean_change,
    pair_ranks,
    slowest_rank,
    typical_change,
)
from diagnose.compare.inference import PRIOR_DEGREES, Located, Spread, student_bound, trimmed_mean
from diagnose.compare.measures import OF_RANKS, Measure, measures_of
from diagnose.compare.notes import notes_on
from diagnose.compare.records import (
    NS_PER_S,
    Change,
    Comparison,
    RankChange,
    RankRatios,
    Side,
    StageChange,
    StepChange,
    Verdict,
)
from diagnose.model.operations import Bools, Ints, step_time_ns
from telemetry.errors import UsageError
from telemetry.stages import Stage

FAMILY_CHANCE = 1e-3
"""Probability that the comparison of two equal runs shows any difference."""
INTERVAL_CHANCE = 0.05
NUM_STEP_TESTS = 2
LEAST_CHANGE = 0.01
LEAST_SHARE = 2e-5
"""A stage that adds or saves less than this share of the step is no difference."""

CONFIRMED = (
    "the change of the step time alone is too small for a verdict. The verdict follows from a stage or a rank, and the "
    "95% interval of the typical step time confirms it"
)
Key = tuple[str, Stage]
"""Role and stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """All tests of a comparison together."""

    number: int
    """Number of tests of stages and ranks."""
    least_log: float
    """The least change, as a logarithm."""

    def bound(self, degrees: float) -> float:
        """Number of standard errors by which a stage or rank must change. The tests share half of ``FAMILY_CHANCE``."""
        return student_bound(FAMILY_CHANCE / 2 / self.number, degrees)

    def bound_of_step(self, degrees: float) -> float:
        """Number of standard errors by which a step time must change. It does not depend on the number of ranks."""
        return student_bound(FAMILY_CHANCE / 2 / NUM_STEP_TESTS, degrees)

    def change(self, located: Located, bound: Bound, *, is_worth: bool = True) -> Change:
        """``located`` as a ratio with its interval and verdict.

        ``is_worth``: whether the change is a large enough share of a step to be a difference.
        """
        at, error = float(located.at[0]), sqrt(float(located.variance[0]))
        degrees = float(located.degrees[0])
        half = student_bound(INTERVAL_CHANCE, degrees) * error
        is_clear = abs(at) >= self.least_log and bool(is_beyond(located, bound)[0]) and is_worth
        return Change(
            ratio=exp(at),
            low=exp(at - half),
            high=exp(at + half),
            detectable=expm1(max(self.least_log, bound(degrees) * error)),
            verdict=direction(at) if is_clear else Verdict.NO_DIFFERENCE,
        )


def direction(change: float) -> Verdict:
    """The verdict for a change of a time. Longer is slower."""
    return Verdict.SLOWER if change > 0 else Verdict.FASTER


def compare_sides(a: Side, b: Side, *, least_change: float = LEAST_CHANGE) -> Comparison:
    """Compare B with A.

    Args:
        a: the reference.
        b: what is compared with it.
        least_change: smaller changes are no difference, as a share of the time.

    Raises:
        UsageError: both sides are the same.
    """
    if a.is_same_as(b):
        raise UsageError("A and B are the same steps of the same ranks", hint="choose another run, range or ranks")
    pair = _Pair(a, b, has_step=not a.has_steps_of(b))
    tests = Tests(number=pair.num_tests, least_log=log1p(least_change))
    changed = {key: paired.changed(tests.bound, tests.least_log) for key, paired in pair.ranks.items()}
    step = pair.step_change(tests) if pair.has_step else None
    typical = pair.typical_change(tests) if pair.has_step else None
    stages = tuple(pair.stage(key, tests, changed.get(key)) for key in pair.keys)
    ranks = _rank_changes(pair, changed)
    verdict = _verdict(step, typical, stages, ranks, least_change)
    is_of_step = any(each is None or each.change.verdict is verdict for each in (step, typical))
    return Comparison(
        a=a.facts,
        b=b.facts,
        verdict=verdict,
        least_change=least_change,
        num_tests=tests.number,
        step=step,
        typical=typical,
        stages=stages,
        ranks=ranks,
        ratios=tuple(
            RankRatios(stage=stage, role=role, ranks=paired.ranks, ratio=np.exp(paired.own))
            for (role, stage), paired in pair.ranks.items()
        ),
        notes=(*notes_on(a, b), *([] if is_of_step else [CONFIRMED])),
    )


class _Pair:
    """The measures of both sides, and their changes before any test."""

    def __init__(self, a: Side, b: Side, *, has_step: bool) -> None:
        self.a, self.b, self.has_step = a, b, has_step
        self._in_a, self._in_b = measures_of(a.view, a.ranks), measures_of(b.view, b.ranks)
        self.step_a_ns = step_time_ns(a.view.step_ns)
        found = {**self._in_a, **self._in_b}
        roles = list(dict.fromkeys(role for role, _ in found))
        self.keys = sorted(found, key=lambda key: (roles.index(key[0]), key[1]))
        self.ranks = dict(self._paired_ranks()) if a.has_ranks_of(b) else {}

    def _paired_ranks(self) -> Iterator[tuple[Key, PairedRanks]]:
        for key, measure in self._in_a.items():
            other = self._in_b.get(key)
            if other is not None and measure.basis is other.basis and measure.basis in OF_RANKS:
                paired = pair_ranks(measure, other)
                if paired is not None:
                    yield key, paired

    @cached_property
    def _series(self) -> dict[Key, Located]:
        """The changes of stages whose ranks are not compared one by one."""
        both = [key for key in self.keys if key in self._in_a and key in self._in_b and key not in self.ranks]
        alike = [key for key in both if self._in_a[key].basis is self._in_b[key].basis]
        found = {key: change_of_series(self._in_a[key], self._in_b[key], same_steps=not self.has_step) for key in alike}
        return {key: change for key, change in found.items() if change is not None}

    @property
    def num_tests(self) -> int:
        num_ranks = sum(len(paired.ranks) for paired in self.ranks.values())
        return max(1, len(self.ranks) + len(self._series) + num_ranks)

    def step_change(self, tests: Tests) -> StepChange:
        """The change of the mean step time."""
        a_ns, b_ns = self.a.view.step_ns, self.b.view.step_ns
        return self._of_step(self.step_a_ns, step_time_ns(b_ns), mean_change(a_ns, b_ns), tests)

    def typical_change(self, tests: Tests) -> StepChange:
        """The change of the trimmed mean step time."""
        a_ns, b_ns = self.a.view.step_ns, self.b.view.step_ns
        return self._of_step(trimmed_mean(a_ns), trimmed_mean(b_ns), typical_change(a_ns, b_ns), tests)

    def _of_step(self, a_ns: float, b_ns: float, change: Located, tests: Tests) -> StepChange:
        exact = self._with_slowest_rank(change)
        return StepChange(a_s=a_ns / NS_PER_S, b_s=b_ns / NS_PER_S, change=tests.change(exact, tests.bound_of_step))

    def _with_slowest_rank(self, change: Located) -> Located:
        usual = Spread(variance=USUAL_CHANGE**2, degrees=PRIOR_DEGREES)
        spread = max((each.spread for each in self.ranks.values()), key=lambda each: each.variance, default=usual)
        slowest = slowest_rank(spread, self.a.view.topology.world_size)
        return change.plus_variance(slowest.variance, slowest.degrees)

    def stage(self, key: Key, tests: Tests, changed: Bools | None) -> StageChange:
        """The change of one stage. ``changed``: which of its ranks changed by themselves. They are left out."""
        role, stage = key
        of_a, of_b = self._in_a.get(key), self._in_b.get(key)
        left_out = self.ranks[key].ranks[changed] if changed is not None else np.zeros(0, dtype=np.int64)
        a_s, a_share = _seconds(of_a, left_out)
        b_s, b_share = _seconds(of_b, left_out)
        located = self._series.get(key)
        if changed is not None and not changed.all():
            located = change_of_ranks(self.ranks[key], ~changed)
        added_s = (b_s or 0.0) * b_share - (a_s or 0.0) * a_share
        if located is not None and a_s is not None:
            added_s = a_s * a_share * expm1(float(located.at[0]))
        share = added_s * NS_PER_S / self.step_a_ns
        bases = {each.basis for each in (of_a, of_b) if each is not None}
        return StageChange(
            stage=stage,
            role=role,
            basis=bases.pop() if len(bases) == 1 else None,
            a_s=a_s,
            b_s=b_s,
            a_share=a_share,
            b_share=b_share,
            change=None if located is None else tests.change(located, tests.bound, is_worth=abs(share) >= LEAST_SHARE),
            share_of_step=share,
        )


def _seconds(measure: Measure | None, left_out: Ints) -> tuple[float | None, float]:
    """Typical time of the stage in the steps that have it, in seconds (mean over the columns), and the share of these
    steps."""
    if measure is None:
        return None, 0.0
    kept = np.ones(measure.ns.shape[1], dtype=bool)
    kept[np.flatnonzero(np.isin(measure.ranks, left_out))] = False
    ns = measure.ns[:, kept] if kept.any() else measure.ns
    known = ~np.isnan(ns)
    rows = known.any(axis=1)
    mean = np.where(known, ns, 0.0).sum(axis=1)[rows] / known.sum(axis=1)[rows]
    return trimmed_mean(mean) / NS_PER_S, float(rows.mean())


def _rank_changes(pair: "_Pair", changed: Mapping[Key, Bools]) -> tuple[RankChange, ...]:
    """A change for each rank that changed in a stage. The largest share of a step comes first."""
    stages: dict[tuple[str, int], dict[Stage, float]] = defaultdict(dict)
    added_ns: dict[tuple[str, int], float] = defaultdict(float)
    for (role, stage), is_changed in changed.items():
        paired = pair.ranks[role, stage]
        for column in np.flatnonzero(is_changed).tolist():
            place, beyond = (role, int(paired.ranks[column])), float(paired.beyond.at[column])
            stages[place][stage] = exp(beyond)
            added_ns[place] += float(paired.a_ns[column]) * expm1(beyond)
    found = [
        RankChange(
            rank=rank,
            role=role,
            host_a=pair.a.view.hosts[rank],
            host_b=pair.b.view.hosts[rank],
            stages=ratios,
            share_of_step=added_ns[role, rank] / pair.step_a_ns,
            verdict=direction(added_ns[role, rank]),
        )
        for (role, rank), ratios in stages.items()
    ]
    return tuple(sorted(found, key=lambda each: -abs(each.share_of_step)))


def _verdict(
    step: StepChange | None,
    typical: StepChange | None,
    stages: Sequence[StageChange],
    ranks: Sequence[RankChange],
    least_change: float,
) -> Verdict:
    for of_step in (step, typical):
        if of_step is not None and of_step.change.verdict is not Verdict.NO_DIFFERENCE:
            return of_step.change.verdict
    differing = [each for each in stages if each.change and each.change.verdict is not Verdict.NO_DIFFERENCE]
    shares = [*(each.share_of_step for each in differing), *(each.share_of_step for each in ranks)]
    found = {direction(share) for share in shares if abs(share) >= least_change}
    if len(found) != 1:
        return Verdict.NO_DIFFERENCE
    (verdict,) = found
    confirmed = typical is None or verdict is _side_of(typical.change)
    return verdict if confirmed else Verdict.NO_DIFFERENCE


def _side_of(change: Change) -> Verdict:
    """The verdict of the 95% interval. It is slower or faster only if the whole interval is on that side."""
    if change.low > 1:
        return Verdict.SLOWER
    return Verdict.FASTER if change.high < 1 else Verdict.NO_DIFFERENCE
