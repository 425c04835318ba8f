"""All checks of this node, for the command or a driver between restarts.

check_node ---> a fresh process (examiner) ---> each check in a process of its own, killed at its deadline
     ^ Begun, CheckResult as they come

compared: from measured to ok or slow. Pure.

expectation for this name?     -- yes -->  slow if below it
         | no
three or more similar parts?   -- yes -->  slow if clearly below their median; two parts do not show which one is slow
         | no
measured                                   a number without a verdict
"""

import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from diagnose.nodecheck.child_processes import SilenceError, run_fresh
from diagnose.nodecheck.network import Rendezvous
from diagnose.nodecheck.result import CheckResult, Verdict, failed
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.access import read_input

EXAMINER = "diagnose.nodecheck.examiner"
START_S = 60.0
"""Longest time for the import of torch from a cold disk."""
MEASURE_S = 0.5
MIN_DEADLINE_S = 5.0
"""Least time limit. A healthy machine can miss a shorter one."""
MIN_ALIKE = 3
RATIO = 1.10
Z = 5.0
"""Slow is ten percent (MegaScale's limit for a straggler) and five robust standard deviations below the median."""
SIGMA_OF_MAD = 1.4826
MAX_BYTES = 2**20
EXPECTABLE = (
    *("host_memory_gb_s", "device_memory_gb_s", "gemm_tflops"),
    *("host_copy_gb_s", "host_to_device_gb_s", "device_to_host_gb_s", "device_to_device_gb_s"),
    *("loopback_gb_s", "nic_pair_gb_s", "all_to_all_gb_s", "neighbours_gb_s"),
    *("disk_write_gb_s", "shared_memory_gb_s", "shared_memory_free_gib"),
)
"""Names of everything that is measured. There are no default expectations: a good value depends on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChecks:
    """What to check, and how long that may take."""

    deadline_s: float = 15.0
    """Time limit of each check. A check that has not finished by then is killed and has failed."""
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """A folder of the disk to check."""
    interface: str | None = None
    """The only network interface to check; None: all with hardware."""
    rendezvous: Rendezvous | None = None
    """Where to find the neighbours for an all-reduce; None: no neighbours."""
    quick: bool = False
    """Check only memory, matrix products and the disk."""
    beside_others: bool = False
    """Check even if ranks record on this host, and GPUs that other processes use. Takes their memory and time."""

    def __post_init__(self) -> None:
        """Raises:
        UsageError: less than five seconds.
        """
        check_deadline(self.deadline_s)

    @property
    def measure_s(self) -> float:
        """Duration of a check's measurement."""
        return min(MEASURE_S, self.deadline_s / 10)

    @property
    def silence_s(self) -> float:
        """The longest time without a report from the examiner."""
        patience_s = self.rendezvous.patience_s if self.rendezvous else 0.0
        return max(START_S, patience_s + 2 * self.deadline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """Reports that a check has begun."""

    check: str


def check_deadline(deadline_s: float) -> None:
    """Raises:
    UsageError: less than five seconds.
    """
    if not deadline_s >= MIN_DEADLINE_S:
        raise UsageError(f"a time limit of {deadline_s:g} s is too low", hint=f"use {MIN_DEADLINE_S:g} s or more")


def check_node(checks: NodeChecks) -> Iterator[Begun | CheckResult]:
    """Run every check. Yields results as they come, measured and not compared yet.

    Raises:
        UsageError: no such folder or interface, or ranks record on this host.
    """
    try:
        yield from run_fresh(EXAMINER, checks, checks.silence_s)
    except SilenceError as error:
        result = failed("examiner", "this machine", f"the process that runs the checks {error}")
        yield replace(result, is_killed=error.is_killed)


def read_expectations(path: Path) -> dict[str, float]:
    """The lowest values that are not slow, by name: a TOML file with lines such as ``gemm_tflops = 600``.

    Raises:
        UnreadableError: the file cannot be read or is not TOML.
        UsageError: an unknown name, or a value that is not a positive number.
    """
    try:
        given = tomllib.loads(read_input(path, max_bytes=MAX_BYTES).decode())
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"cannot read expectations from {path}: {getattr(error, 'strerror', None) or error}",
            hint="write one line for each value: NAME = NUMBER",
        ) from error
    for name, value in given.items():
        if name not in EXPECTABLE:
            raise UsageError(f"{path}: no check measures {name!r}", hint=f"known names: {', '.join(EXPECTABLE)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UsageError(
                f"{path}: {name} = {value!r} is not a positive number", hint="give the lowest value that is not slow"
            )
    return given


def compared(results: Sequence[CheckResult], expectations: Mapping[str, float]) -> tuple[CheckResult, ...]:
    """The same results in the same order, with a verdict for each value that can be compared.

    Args:
        expectations: by name (:data:`EXPECTABLE`), the lowest value that is not slow.
    """
    return tuple(_judged(result, results, expectations) for result in results)


def _judged(result: CheckResult, results: Sequence[CheckResult], expectations: Mapping[str, float]) -> CheckResult:
    if result.verdict is not Verdict.MEASURED or result.value is None:
        return result
    expected = expectations.get(result.measured)
    if expected is not None:
        return replace(result, expected=expected, verdict=_slow(result.value < expected))
    alike = [other for other in results if _are_alike(result, other)]
    return _compared_with(alike, result, result.value) if len(alike) >= MIN_ALIKE else result


def _are_alike(result: CheckResult, other: CheckResult) -> bool:
    """Whether both measured the same value of parts of the same kind. True for a result and itself."""
    if other.verdict is not Verdict.MEASURED or not result.alike:
        return False
    return (result.check, result.measured, result.alike) == (other.check, other.measured, other.alike)


def _compared_with(alike: Sequence[CheckResult], result: CheckResult, value: float) -> CheckResult:
    """The result with its verdict against similar parts. The scatter is the largest of that between the parts and those
    of the repetitions on each part."""
    values = [other.value for other in alike if other.value is not None]
    usual = median(values)
    scatter = SIGMA_OF_MAD * max(median(abs(other - usual) for other in values), *(other.spread for other in alike))
    is_slow = usual > RATIO * value and usual - value > Z * scatter
    detail = f"{result.detail}; median of {len(alike)} similar parts: {usual:.3g}".removeprefix("; ")
    return replace(result, expected=usual, verdict=_slow(is_slow), detail=detail)


def _slow(is_slow: bool) -> Verdict:
    return Verdict.SLOW if is_slow else Verdict.OK
