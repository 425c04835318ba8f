"""What node 0 does in the paired test: wait for the nodes, plan each round from the results, judge.

Nodes exchange JSON through the store. Anyone who reaches the port can write to the store, so
nothing is unpickled.

seat/I       how often node I has joined (must be once)
here/I       its host and number of devices
plan/R       the pairs of round R, or the verdict
share/R/I    the result of node I in round R
read/I       node I has read the verdict
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from diagnose.nodecheck.network import HINT, Rendezvous
from diagnose.nodecheck.pairs.paired_test import MARGIN_S, PairedTest
from diagnose.nodecheck.pairs.plan import Pair, judge, pairs
from diagnose.nodecheck.pairs.records import PairedVerdict, PairRun, verdict_object
from telemetry.errors import UnreachableError

READ_S = 5.0
"""Time for the nodes to read the verdict before the store ends."""
GRACE_S = 1.0
"""Time for a node that did not answer in an earlier round, after its partner has answered."""


class Board:
    """JSON values by key, over one connection to the store. Every method raises UnreachableError if it is gone."""

    def __init__(self, store: Any, rendezvous: Rendezvous) -> None:
        self._store = store
        self._endpoint = rendezvous.endpoint

    def put(self, key: str, value: object) -> None:
        with self._translated():
            self._store.set(key, json.dumps(value))

    def get(self, key: str, wait_s: float) -> Any:
        """The value as soon as it exists; None if it does not exist in time."""
        if not self.wait([key], wait_s):
            return None
        with self._translated():
            return json.loads(self._store.get(key))

    def wait(self, keys: Sequence[str], wait_s: float) -> bool:
        """Whether all keys exist before the time is over."""
        with self._translated():
            try:
                self._store.wait(list(keys), timedelta(seconds=max(wait_s, 0.01)))
            except dist.DistStoreError:
                return False
        return True

    def take_seat(self, index: int) -> bool:
        """Register a node under its index. Returns False if another node has this index."""
        with self._translated():
            return int(self._store.add(f"seat/{index}", 1)) == 1

    def gone(self) -> UnreachableError:
        """The error if node 0 does not answer."""
        message = f"node 0 at {self._endpoint} stopped answering"
        return UnreachableError(message, hint=f"check that node 0 runs; {HINT}")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except dist.DistError as error:
            raise self.gone() from error


class Coordinator:
    """Plans the rounds from the results so far."""

    def __init__(self, board: Board, test: PairedTest) -> None:
        self._board = board
        self._test = test
        self._here: dict[int, dict[str, Any]] = {}
        self._pairs: tuple[Pair, ...] = ()
        self._due = 0.0
        self._runs: list[PairRun] = []
        self._silent: set[int] = set()

    def plan(self, round: int) -> None:
        """Publish the plan of ``round``: its pairs, or the verdict."""
        if round == 0:
            self._wait_for_nodes()
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
        """Wait until the nodes have read the verdict, for at most ``READ_S``: the store ends with this process."""
        deadline = time.monotonic() + READ_S
        for node in self._here.keys() - self._silent:
            self._board.wait([f"read/{node}"], deadline - time.monotonic())

    def _wait_for_nodes(self) -> None:
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
        wait_s = self._due - time.monotonic()
        if node in self._silent and not self._silent.issuperset(pair):
            wait_s = min(wait_s, GRACE_S)
        share: dict[str, Any] | None = self._board.get(f"share/{round}/{node}", wait_s)
        return share

    def _verdict(self) -> PairedVerdict:
        nodes = range(self._test.rendezvous.nodes)
        return PairedVerdict(
            hosts=tuple(self._here[node]["host"] if node in self._here else "" for node in nodes),
            runs=tuple(self._runs),
            judgement=judge(sorted(self._here), self._runs),
        )


def as_run(round: int, pair: Pair, shares: list[dict[str, Any] | None]) -> PairRun:
    """The run of a pair. It is as slow as its slower member. It has failed if a member failed or did not answer."""
    answers = [share or {"seconds": None, "own_s": 0.0, "reason": "did not answer"} for share in shares]
    if any(share["seconds"] is None for share in answers):
        reasons = [
            f"node {node}: {share['reason']}" for node, share in zip(pair, answers, strict=True) if share["reason"]
        ]
        return PairRun(round=round, members=pair, seconds=None, reason="; ".join(reasons))
    seconds = max(share["seconds"] for share in answers)
    return PairRun(round=round, members=pair, seconds=seconds, own_s=(answers[0]["own_s"], answers[1]["own_s"]))
