"""What a healthy node reaches, as its owner knows it: a TOML file of lowest values.

    gemm_tflops = 600
    disk_write_gb_s = 1.2

Every name is optional. Nothing is expected by default: what is fast depends on the machine.

From measured to ok or slow. Pure.

expectation for this name?  -- yes -->  slow when below it
         | no
three or more alike?        -- yes -->  slow when far below their median: of two nobody knows which is wrong
         | no
measured                                a number to look at, no verdict
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median

from diagnose.nodecheck.result import CheckResult, Verdict
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.input_file import read_input

MAX_BYTES = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The least that is not called slow."""

    host_memory_gb_s: float | None = None
    device_memory_gb_s: float | None = None
    gemm_tflops: float | None = None
    host_copy_gb_s: float | None = None
    host_to_device_gb_s: float | None = None
    device_to_host_gb_s: float | None = None
    device_to_device_gb_s: float | None = None
    loopback_gb_s: float | None = None
    nic_pair_gb_s: float | None = None
    all_to_all_gb_s: float | None = None
    neighbours_gb_s: float | None = None
    disk_write_gb_s: float | None = None
    shared_memory_gb_s: float | None = None
    shared_memory_free_gib: float | None = None

    def of(self, measured: str) -> float | None:
        """What is expected of a value of that name."""
        value: float | None = getattr(self, measured, None)
        return value


def read_expectations(path: Path) -> Expectations:
    """Raises:
    UnreadableError: it cannot be read or is no TOML.
    UsageError: an unknown name, or a value that is no positive number.
    """
    try:
        given = tomllib.loads(read_input(path, max_bytes=MAX_BYTES).decode())
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"cannot read expectations from {path}: {error}", hint="a line is: NAME = NUMBER"
        ) from error
    known = [field.name for field in fields(Expectations)]
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"{path} expects something of {name!r}, which nothing measures", hint=f"known: {', '.join(known)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UsageError(f"{path}: {name} = {value!r} is no positive number", hint="the least that is not slow")
    return Expectations(**given)


MIN_ALIKE = 3
RATIO = 1.10
Z = 5.0
"""Ten percent, MegaScale's mark of a straggler, and five robust standard deviations."""
SIGMA_OF_MAD = 1.4826


def compared(results: Sequence[CheckResult], expectations: Expectations) -> tuple[CheckResult, ...]:
    """The same results in the same order, each measured one judged where there is something to compare it with."""
    return tuple(_judged(result, results, expectations) for result in results)


def _judged(result: CheckResult, results: Sequence[CheckResult], expectations: Expectations) -> CheckResult:
    if result.verdict is not Verdict.MEASURED or result.value is None:
        return result
    expected = expectations.of(result.measured)
    if expected is not None:
        return replace(result, expected=expected, verdict=_slow(result.value < expected))
    alike = [other for other in results if _are_alike(result, other)]
    return _among(result, alike) if len(alike) >= MIN_ALIKE else result


def _are_alike(one: CheckResult, other: CheckResult) -> bool:
    """Both measured the same thing on parts of the same kind; a result is like itself."""
    if other.verdict is not Verdict.MEASURED or not one.alike:
        return False
    return (one.check, one.measured, one.alike) == (other.check, other.measured, other.alike)


def _among(result: CheckResult, alike: Sequence[CheckResult]) -> CheckResult:
    """The scatter is that of the parts, or of the repetitions on a part where that is wider."""
    values = [other.value for other in alike if other.value is not None]
    usual = median(values)
    scatter = SIGMA_OF_MAD * max(median(abs(value - usual) for value in values), *(other.spread for other in alike))
    assert result.value is not None
    far = usual > RATIO * result.value and usual - result.value > Z * scatter
    words = f"{result.detail}; the median of {len(alike)} alike is {usual:.3g}".removeprefix("; ")
    return replace(result, expected=usual, verdict=_slow(far), detail=words)


def _slow(is_slow: bool) -> Verdict:
    return Verdict.SLOW if is_slow else Verdict.OK
