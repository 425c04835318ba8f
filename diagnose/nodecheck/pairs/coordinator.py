"""Node 0's side of the paired test: wait for the nodes, plan each round from what the last one gave, judge.

What nodes write for each other in the store. JSON: whoever reaches the port could put anything there.

seat/I       how often node I has come (once)
here/I       its host and devices
plan/R       the pairs of round R, or the verdict
share/R/I    what node I did in it
read/I       node I has read the verdict
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from diagnose.nodecheck.pairs.judge import judge
from diagnose.nodecheck.pairs.paired_test import MARGIN_S, PairedTest
from diagnose.nodecheck.pairs.plan import Pair, pairs
from diagnose.nodecheck.pairs.records import PairedVerdict, PairRun
from diagnose.nodecheck.pairs.wire import verdict_object
from diagnose.nodecheck.rendezvous import HINT, Rendezvous
from telemetry.errors import UnreachableError


class Board:
    """Words by key, over one connection."""

    def __init__(self, store: Any, rendezvous: Rendezvous) -> None:
        self._store = store
        self._endpoint = rendezvous.endpoint

    def put(self, key: str, value: object) -> None:
        """Raises:
        UnreachableError: the store is gone.
        """
        with self._answering():
            self._store.set(key, json.dumps(value))

    def get(self, key: str, wait_s: float) -> Any:
        """The value, as soon as there is one; None when none came in time.

        Raises:
            UnreachableError: the store is gone.
        """
        if not self.wait([key], wait_s):
            return None
        with self._answering():
            return json.loads(self._store.get(key))

    def wait(self, keys: Sequence[str], wait_s: float) -> bool:
        """Whether all keys are there before the time is over.

        Raises:
            UnreachableError: the store is gone.
        """
        with self._answering():
            try:
                self._store.wait(list(keys), timedelta(seconds=max(wait_s, 0.01)))
            except dist.DistStoreError:
                return False
        return True

    def take_seat(self, index: int) -> bool:
        """False when somebody sits there.

        Raises:
            UnreachableError: the store is gone.
        """
        with self._answering():
            return int(self._store.add(f"seat/{index}", 1)) == 1

    def gone(self) -> UnreachableError:
        """What to raise when node 0 is silent."""
        return UnreachableError(f"node 0 at {self._endpoint} stopped answering", hint=f"is it alive? {HINT}")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except dist.DistError as error:
            raise self.gone() from error


READ_S = 5.0
"""Nodes have so long to read the verdict before the store goes."""
GRACE_S = 1.0
"""Who gave no answer in an earlier round is waited for no longer than this, once his partner has answered."""


class Coordinator:
    """Keeps what is known so far."""

    def __init__(self, board: Board, test: PairedTest) -> None:
        self._board = board
        self._test = test
        self._here: dict[int, dict[str, Any]] = {}
        self._pairs: tuple[Pair, ...] = ()
        self._due = 0.0
        self._runs: list[PairRun] = []
        self._silent: set[int] = set()

    def plan(self, round: int) -> None:
        """Put up the plan of ``round``: its pairs, or the verdict."""
        if round == 0:
            self._welcome()
        self._gather(round - 1)
        present = sorted(self._here)
        self._pairs = pairs(present, round, self._runs)
        plan = {
            "present": present,
            "num_devices": min(here["num_devices"] for here in self._here.values()),
            "pairs": self._pairs,
            "verdict": None if self._pairs else verdict_object(self._verdict()),
        }
        self._board.put(f"plan/{round}", plan)
        self._due = time.monotonic() + self._test.deadline_s + MARGIN_S

    def wait_for_readers(self) -> None:
        """The store goes when this process does."""
        deadline = time.monotonic() + READ_S
        for node in self._here.keys() - self._silent:
            self._board.wait([f"read/{node}"], deadline - time.monotonic())

    def _welcome(self) -> None:
        """Who has not come in time is absent."""
        deadline = time.monotonic() + self._test.rendezvous.patience_s
        for node in range(self._test.rendezvous.nodes):
            here = self._board.get(f"here/{node}", deadline - time.monotonic())
            if here is not None:
                self._here[node] = here

    def _gather(self, round: int) -> None:
        for pair in self._pairs:
            shares = {node: self._share(round, node, pair) for node in sorted(pair, key=self._silent.__contains__)}
            self._silent -= shares.keys()
            self._silent |= {node for node, share in shares.items() if share is None}
            self._runs.append(as_run(round, pair, [shares[node] for node in pair]))

    def _share(self, round: int, node: int, pair: Pair) -> dict[str, Any] | None:
        left_s = self._due - time.monotonic()
        is_gone = node in self._silent and not self._silent.issuperset(pair)
        share: dict[str, Any] | None = self._board.get(
            f"share/{round}/{node}", min(left_s, GRACE_S) if is_gone else left_s
        )
        return share

    def _verdict(self) -> PairedVerdict:
        nodes = range(self._test.rendezvous.nodes)
        return PairedVerdict(
            hosts=tuple(self._here[node]["host"] if node in self._here else "" for node in nodes),
            runs=tuple(self._runs),
            judgement=judge(sorted(self._here), self._runs),
        )


def as_run(round: int, pair: Pair, shares: list[dict[str, Any] | None]) -> PairRun:
    """The pair is as slow as the slower of the two, and has failed when one has, or gave no answer."""
    told = [share or {"seconds": None, "own_s": 0.0, "reason": "gave no answer"} for share in shares]
    if any(share["seconds"] is None for share in told):
        reasons = [f"node {node}: {share['reason']}" for node, share in zip(pair, told, strict=True) if share["reason"]]
        return PairRun(round=round, members=pair, seconds=None, reason="; ".join(reasons))
    seconds = max(share["seconds"] for share in told)
    return PairRun(round=round, members=pair, seconds=seconds, own_s=(told[0]["own_s"], told[1]["own_s"]))
