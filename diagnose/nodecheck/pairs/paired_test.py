"""The paired test, for whoever wants to know: every node calls :func:`run_paired_test`, each gets the verdict.

node 0    hosts the store, plans the rounds, judges           a fresh process each (:mod:`.member`), which forks for
node i    takes its place in each round                       each round and kills what does not finish
"""

from collections.abc import Iterator
from dataclasses import dataclass

from diagnose.nodecheck.answers import SilenceError, ask
from diagnose.nodecheck.node import MIN_DEADLINE_S, START_S
from diagnose.nodecheck.pairs.plan import Pair
from diagnose.nodecheck.pairs.records import PairedVerdict
from diagnose.nodecheck.rendezvous import HINT, Rendezvous
from telemetry.errors import UnreachableError, UsageError

MEMBER = "diagnose.nodecheck.pairs.member"
MARGIN_S = 5.0
"""For what lies between two rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """One node's part in the test."""

    rendezvous: Rendezvous
    deadline_s: float = 15.0
    """For each round: a pair that has not finished by then has failed."""
    measure_s: float = 1.5

    def __post_init__(self) -> None:
        """Raises:
        UsageError: less than five seconds.
        """
        if not self.deadline_s >= MIN_DEADLINE_S:
            raise UsageError(
                f"{self.deadline_s:g} s are too few for a round", hint=f"give each round {MIN_DEADLINE_S:g} s or more"
            )

    @property
    def silence_s(self) -> float:
        """No round, nor what comes before the first, takes longer."""
        return START_S + self.rendezvous.patience_s + 2 * self.deadline_s + MARGIN_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundBegun:
    """A round has begun."""

    round: int
    pairs: tuple[Pair, ...]


def run_paired_test(test: PairedTest) -> Iterator[RoundBegun | PairedVerdict]:
    """Take part; the verdict comes last.

    Raises:
        UsageError: torch is missing, the endpoint is not node 0's, two nodes have the same index.
        UnreachableError: node 0 does not answer.
    """
    try:
        yield from ask(MEMBER, test, test.silence_s)
    except SilenceError as error:
        raise UnreachableError(f"the paired test of this node {error}", hint=HINT) from error
