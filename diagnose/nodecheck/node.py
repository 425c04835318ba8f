"""All self-checks of this machine, for whoever wants to know: the command, or a driver between restarts.

check_node ---> a fresh process (examiner) ---> each check in a process of its own, killed at its deadline
     ^ Begun, CheckResult as they come
compared(results, expectations): who is slow
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from diagnose.nodecheck.answers import SilenceError, ask
from diagnose.nodecheck.rendezvous import Rendezvous
from diagnose.nodecheck.result import CheckResult, failed
from telemetry.errors import UsageError

EXAMINER = "diagnose.nodecheck.examiner"
START_S = 60.0
"""Importing torch from a cold disk, at the utmost."""
MEASURE_S = 0.5
MIN_DEADLINE_S = 5.0
"""Under which a healthy machine may miss it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChecks:
    """What to check, and how long that may take."""

    deadline_s: float = 15.0
    """For each check: one that has not finished by then is killed and has failed."""
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Where the disk is tried."""
    interface: str | None = None
    """The one network interface to try; None: all with hardware behind them."""
    rendezvous: Rendezvous | None = None
    """Neighbours to all-reduce with; None: none."""
    beside_others: bool = False
    """Also on a host whose ranks are recording and on GPUs in use by others: takes memory and time from them."""

    def __post_init__(self) -> None:
        """Raises:
        UsageError: less than five seconds.
        """
        if not self.deadline_s >= MIN_DEADLINE_S:
            raise UsageError(
                f"{self.deadline_s:g} s are too few for any check", hint=f"give each check {MIN_DEADLINE_S:g} s or more"
            )

    @property
    def measure_s(self) -> float:
        """A check repeats its measurement for so long."""
        return min(MEASURE_S, self.deadline_s / 10)

    @property
    def silence_s(self) -> float:
        """No check, nor what comes before the first, takes longer."""
        patience_s = self.rendezvous.patience_s if self.rendezvous else 0.0
        return max(START_S, patience_s + 2 * self.deadline_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A check has begun."""

    check: str


def check_node(checks: NodeChecks) -> Iterator[Begun | CheckResult]:
    """Run every check; results as they come, measured and not yet compared.

    Raises:
        UsageError: no such folder or interface, or ranks are recording on this host.
    """
    try:
        yield from ask(EXAMINER, checks, checks.silence_s)
    except SilenceError as error:
        yield failed("examiner", "this machine", f"the process that runs the checks {error}")
