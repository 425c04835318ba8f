"""The paired test: every node calls :func:`run_paired_test`, and each gets the verdict.

node 0    hosts the store, plans the rounds, judges           a fresh process each (the examiner), which forks for
node i    works with its partner in each round                each round and kills what does not finish
"""

from collections.abc import Iterator
from dataclasses import dataclass

from diagnose.nodecheck.child_processes import SilenceError, run_fresh
from diagnose.nodecheck.network import HINT, Rendezvous
from diagnose.nodecheck.node import EXAMINER, START_S, check_deadline
from diagnose.nodecheck.pairs.plan import Pair
from diagnose.nodecheck.pairs.records import PairedVerdict
from telemetry.errors import UnreachableError

MARGIN_S = 5.0
"""Time between two rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """The part of one node in the test."""

    rendezvous: Rendezvous
    deadline_s: float = 15.0
    """Time limit of each round. A pair that has not finished by then has failed."""
    measure_s: float = 1.5

    def __post_init__(self) -> None:
        """Raises:
        UsageError: less than five seconds.
        """
        check_deadline(self.deadline_s)

    @property
    def silence_s(self) -> float:
        """The longest time without a report from the process."""
        return START_S + self.rendezvous.patience_s + 2 * self.deadline_s + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBegun:
    """Reports that a round has begun."""

    round: int
    pairs: tuple[Pair, ...]


def run_paired_test(test: PairedTest) -> Iterator[RoundBegun | PairedVerdict]:
    """Take part in the test. Yields each round as it begins, and the verdict last.

    Raises:
        UsageError: torch is missing, the endpoint is not an address of node 0, or two nodes have the same index.
        UnreachableError: node 0 does not answer.
    """
    try:
        yield from run_fresh(EXAMINER, test, test.silence_s)
    except SilenceError as error:
        raise UnreachableError(f"the paired test of this node {error}", hint=HINT) from error
