"""The statistics of a comparison: the location of a series of steps, its error, and bounds for many tests at once.

    series of A   ..-.'..-.'..     location, variance of the location, degrees of freedom
    series of B   .-'-.'-'..-'     difference / error  -->  Student's t, with a bound for all tests together

- Locations are 20% trimmed means of logarithms with Winsorized variances: Yuen, "The two-sample trimmed t for unequal
  population variances", Biometrika 61 (1974). A median would jump between the two levels of a series with two levels.
- Steps are autocorrelated. They count as fewer steps, ``n (1 - r) / (1 + r)``: Bayley and Hammersley, "The effective
  number of independent observations in an autocorrelated time series", JRSS Supplement 8 (1946). ``r`` is corrected for
  its bias: Marriott and Pope, Biometrika 41 (1954).
- Degrees of freedom of a difference: Welch and Satterthwaite (1946). The sides may have different noise.
- Between two equal runs, each rank changes by a constant. Few ranks do not show the variance of these constants well.
  So it is combined with a usual variance: Smyth, "Linear models and empirical Bayes methods", SAGMB 3 (2004).
- The bound for all tests is Bonferroni's. It holds also for tests that depend on each other.
"""

from dataclasses import dataclass
from math import expm1, pi, sqrt
from statistics import NormalDist

import numpy as np

from diagnose.model.operations import Floats
from diagnose.model.peers import robust_sigma

TRIM = 0.2
"""Share of the steps that a trimmed mean leaves out on each side."""
MOST_LINGERING = 0.95
"""Limit of the autocorrelation of neighbouring steps."""
MAD_EFFICIENCY = 0.37
"""A variance from median absolute deviations is as exact as one from this share of the values (Rousseeuw and Croux,
JASA 88, 1993)."""
PRIOR_DEGREES = 5.0
"""Degrees of freedom of the usual variance between ranks."""
FEWEST_DEGREES = 2.0
SMALLEST_CHANCE = 1e-12
"""The smallest probability that :func:`student_bound` uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The locations of some columns, with their errors. Each array is [columns]."""

    at: Floats
    variance: Floats
    """Variance of the location."""
    degrees: Floats

    def minus(self, other: "Located") -> "Located":
        """The difference of two independent locations, with Welch's degrees of freedom."""
        variance = self.variance + other.variance
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = self.variance**2 / self.degrees + other.variance**2 / other.degrees
            degrees = np.where(parts > 0, variance**2 / parts, self.degrees + other.degrees)
        return Located(at=self.at - other.at, variance=variance, degrees=degrees)

    def plus_variance(self, variance: float, degrees: float) -> "Located":
        """The same location with a further independent source of error."""
        return self.minus(
            Located(at=np.zeros(1), variance=np.array([variance]), degrees=np.array([max(degrees, FEWEST_DEGREES)]))
        )


def locate(values: Floats, trim: float = TRIM) -> Located:
    """The trimmed mean of each column of ``values`` [steps, columns] without NaN. ``trim`` = 0: the mean."""
    count = len(values)
    cut = int(trim * count)
    kept = count - 2 * cut
    ordered = np.sort(values, axis=0)
    low, high = ordered[cut], ordered[count - 1 - cut]
    winsorized = np.clip(values, low, high)
    inflation = _inflation(winsorized)
    effective = np.maximum(kept / inflation, 1.0 + FEWEST_DEGREES)
    spread = np.var(winsorized, axis=0, ddof=1) * (count - 1) / (kept * (kept - 1))
    return Located(at=ordered[cut : count - cut].mean(axis=0), variance=spread * inflation, degrees=effective - 1)


def trimmed_mean(values: Floats) -> float:
    """The trimmed mean of a series, [steps]."""
    cut = int(TRIM * len(values))
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _inflation(values: Floats) -> Floats:
    """Factor on the variance of a mean for the autocorrelation of neighbouring steps; at least 1. [columns]."""
    count = len(values)
    residual = values - values.mean(axis=0)
    power = (residual**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.where(power > 0, (residual[1:] * residual[:-1]).sum(axis=0) / power, 0.0)
    unbiased = (measured + 1 / count) / (1 - 3 / count)
    lingering = np.clip(unbiased, 0.0, MOST_LINGERING)
    return np.asarray((1 + lingering) / (1 - lingering))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Variance between ranks that are equal, and its degrees of freedom."""

    variance: float
    degrees: float


def spread_between(values: Floats, usual: float) -> Spread:
    """The variance between the values of ranks. ``usual``: the usual standard deviation.

    For two ranks, the result is the usual variance: each is as far from the other as the other is from it.
    """
    degrees = MAD_EFFICIENCY * max(0, len(values) - 2)
    measured = robust_sigma(values, 0.0) ** 2
    total = PRIOR_DEGREES + degrees
    return Spread(variance=(PRIOR_DEGREES * usual**2 + degrees * measured) / total, degrees=total)


def student_bound(chance: float, degrees: float) -> float:
    """The value that Student's t exceeds, on either side, with this probability. ``degrees``: at least 2.

    Hill, "Algorithm 396: Student's t-quantiles", CACM 13 (1970); the names are his.
    """
    p, n = min(1.0, max(chance, SMALLEST_CHANCE)), degrees
    if n <= FEWEST_DEGREES:
        return sqrt(2 / (p * (2 - p)) - 2)
    a = 1 / (n - 0.5)
    b = 48 / a**2
    c = ((20700 * a / b - 98) * a - 16) * a + 96.36
    d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * pi / 2) * n
    y = (d * p) ** (2 / n)
    if y <= 0.05 + a:
        tail = 1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3)
        return sqrt(n * (((tail + 0.5 / (n + 4)) * y - 1) * (n + 1) / (n + 2) + 1 / y))
    x = NormalDist().inv_cdf(p / 2)
    if n < 5:
        c += 0.3 * (n - 4.5) * (x + 0.6)
    c += (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b
    y = x * x
    y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x
    return sqrt(n * expm1(a * y * y))
