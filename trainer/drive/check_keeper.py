"""The checks that the driver orders for this node: starts their commands, and keeps the newest results."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from trainer.drive.checks import why_failed
from trainer.drive.driver_client import FreePort
from trainer.drive.node_check import NodeCheck, PairedCheck
from trainer.drive.reachability import unreached_among
from trainer.drive.records import CheckReport, Order, PairReport, PairsOrder, Work

NO_PEERS: Mapping[str, str] = MappingProxyType({})


class CheckKeeper:
    """Runs at most one check and one paired test at a time. Not thread-safe."""

    def __init__(self, folder: Path, node: str, port: FreePort) -> None:
        self._folder, self._node, self._port = folder, node, port
        self._check: NodeCheck | None = None
        self._repeated = 0
        """The round whose check was started again, because something else had killed it."""
        self._pairing: PairedCheck | None = None
        self.checked: CheckReport | None = None
        """The newest finished round of checks."""
        self.paired: PairReport | None = None
        """The newest finished paired test."""

    def obey(self, order: Order, *, may_start: bool = True) -> None:
        """Start what is ordered, end what is not, and collect results. ``may_start``: whether no rank lives on this
        node."""
        is_check = order.work is Work.CHECK and may_start
        self._mind_check(order.check if is_check and order.pairs is None else None, order.peers)
        self._mind_pairs(order.pairs if is_check else None)

    def end(self) -> None:
        """Kill the commands of the check and of the paired test."""
        self._mind_check(None)
        self._mind_pairs(None)

    def _mind_check(self, number: int | None, peers: Mapping[str, str] = NO_PEERS) -> None:
        if self._check is not None and self._check.number != number:
            self._check.end()
            self._check = None
        done = self.checked is not None and self.checked.number == number
        if number is not None and not done and self._check is None:
            try:
                self._check = NodeCheck(number, self._folder, self._node)
            except OSError as error:
                self.checked = CheckReport(number=number, problem=f"the checks cannot start: {error}")
        if self._check is not None and (found := self._check.result()) is not None:
            self._check = None
            if found.unknown and not why_failed(found) and self._repeated != number:
                self._repeated = found.number  # the next order starts it again
            else:
                unreached = unreached_among(peers, self._port.address)
                reached = tuple(peer for peer in peers if peer not in unreached)
                self.checked = replace(found, reached=reached, unreached=unreached)

    def _mind_pairs(self, order: PairsOrder | None) -> None:
        number = order.number if order else None
        if self._pairing is not None and self._pairing.number != number:
            self._pairing.end()
            self._pairing = None
            self._port.take()
        done = self.paired is not None and self.paired.number == number
        if order is not None and not done and self._pairing is None:
            if order.index == 0:
                self._port.release()
            try:
                self._pairing = PairedCheck(order, self._node)
            except OSError as error:
                self.paired = PairReport(number=order.number, problem=f"the paired test cannot start: {error}")
        if self._pairing is not None and (found := self._pairing.result()) is not None:
            self.paired, self._pairing = found, None
            self._port.take()
