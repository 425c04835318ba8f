"""A node's way through the paired test: come, take part in each round, read the verdict.

What two nodes do together in a round: a matrix product each, then an all-reduce of both; again and again.

node a   [ product ][ all-reduce ][ product ][ all-reduce ] ..      one process for each GPU, one for the CPU
node b   [  product   ][ reduce  ][  product   ][ reduce  ] ..
"""

import itertools
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist

from diagnose.nodecheck import devices
from diagnose.nodecheck.answers import Tell
from diagnose.nodecheck.bounded import BURIAL_S, run_bounded
from diagnose.nodecheck.collective import Member, all_reduce_for, host_store, join, reach_store
from diagnose.nodecheck.devices import is_gpu
from diagnose.nodecheck.network import interface_towards
from diagnose.nodecheck.pairs.coordinator import Board, Coordinator
from diagnose.nodecheck.pairs.paired_test import MARGIN_S, PairedTest, RoundBegun
from diagnose.nodecheck.pairs.plan import Pair
from diagnose.nodecheck.pairs.wire import read_verdict
from diagnose.nodecheck.rendezvous import HINT, Rendezvous, listen
from telemetry.errors import UnreachableError, UsageError
from telemetry.process.child_process import tie_to_parent

SIZE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One node's part in a pair: means over the iterations, so that a pause counts; of its slowest device."""

    seconds: float | None
    own_s: float = 0.0
    reason: str = ""
    """Why it failed."""


def work_together(
    rendezvous: Rendezvous, pair: tuple[int, int], key: str, devices: Sequence[str], measure_s: float, deadline_s: float
) -> Share:
    """This node's share in ``pair``; both sides call this with the same ``key``."""
    first_rank = pair.index(rendezvous.index) * len(devices)
    interface = rendezvous.interface or interface_towards(rendezvous.host)
    members = [
        Member(
            rank=first_rank + place,
            world_size=2 * len(devices),
            device=device,
            interface=interface,
            timeout_s=deadline_s,
        )
        for place, device in enumerate(devices)
    ]
    calls = [partial(_iterate, rendezvous, member, key, measure_s) for member in members]
    outcomes = run_bounded(calls, deadline_s)
    if errors := [outcome.error for outcome in outcomes if outcome.error]:
        return Share(seconds=None, reason=errors[0])
    shares: list[Share] = [outcome.value for outcome in outcomes]
    return max(shares, key=lambda share: (share.seconds is None, share.seconds or 0.0))


def _iterate(rendezvous: Rendezvous, member: Member, key: str, measure_s: float) -> Share:
    join(dist.PrefixStore(key, reach_store(rendezvous.host, rendezvous.port, member.timeout_s)), member)
    size = 4096 if is_gpu(member.device) else 512
    a = torch.randn(size, size, device=member.device)
    b, out = torch.randn_like(a), torch.empty_like(a)
    done = all_reduce_for(measure_s, member, SIZE_BYTES, lambda: torch.mm(a, b, out=out))
    if not done.is_right:
        return Share(seconds=None, reason="the sum of the all-reduce is wrong")
    return Share(seconds=fmean(done.whole_s), own_s=fmean(done.own_s))


def take_part(test: PairedTest, tell: Tell) -> None:
    """The whole test, on this node; node 0 hosts the store meanwhile.

    Raises:
        UsageError: the endpoint is not ours, the seat is taken, or this node came too late.
        UnreachableError: node 0 does not answer.
    """
    if test.rendezvous.index:
        _pass_rounds(test, tell)
        return
    with _hosting(test.rendezvous):
        _pass_rounds(test, tell)


def _pass_rounds(test: PairedTest, tell: Tell) -> None:
    own_devices = _devices(test)
    board = _come(test.rendezvous, len(own_devices))
    coordinator = Coordinator(board, test) if test.rendezvous.index == 0 else None
    for round in itertools.count():
        if coordinator:
            coordinator.plan(round)
        plan = _plan(board, test, round)
        if plan["verdict"]:
            break
        planned = tuple((first, second) for first, second in plan["pairs"])
        tell(RoundBegun(round=round, pairs=planned))
        _play(test, board, round, planned, own_devices[: plan["num_devices"]])
    board.put(f"read/{test.rendezvous.index}", True)
    if coordinator:
        coordinator.wait_for_readers()
    tell(read_verdict(plan["verdict"]))  # whoever hears it may end this process


def _devices(test: PairedTest) -> list[str]:
    """Asked in a process of its own: a driver may hang, and after it has been asked no fork may use it."""
    (found,) = run_bounded([devices.gpus], test.deadline_s)
    return found.value or ["cpu"]


def _come(rendezvous: Rendezvous, num_devices: int) -> Board:
    """Raises:
    UnreachableError: the store does not answer.
    UsageError: another node has this index.
    """
    try:
        board = Board(reach_store(rendezvous.host, rendezvous.port, rendezvous.patience_s), rendezvous)
    except dist.DistError as error:
        raise UnreachableError(f"no answer from node 0 at {rendezvous.endpoint}", hint=HINT) from error
    if not board.take_seat(rendezvous.index):
        raise UsageError(f"two nodes say that they are node {rendezvous.index}", hint=HINT)
    board.put(f"here/{rendezvous.index}", {"host": socket.gethostname(), "num_devices": num_devices})
    return board


def _plan(board: Board, test: PairedTest, round: int) -> dict[str, Any]:
    """Raises:
    UnreachableError: node 0 is silent.
    UsageError: the test began without this node.
    """
    wait_s = test.rendezvous.patience_s if round == 0 else 2 * test.deadline_s
    plan: dict[str, Any] | None = board.get(f"plan/{round}", wait_s + 2 * MARGIN_S)
    if plan is None:
        raise board.gone()
    if test.rendezvous.index not in plan["present"]:
        message = f"node {test.rendezvous.index} came too late: the others have begun"
        raise UsageError(message, hint="start the nodes within a minute of each other")
    return plan


def _play(test: PairedTest, board: Board, round: int, planned: Sequence[Pair], own_devices: Sequence[str]) -> None:
    """This node's part in a round; nothing when it sits out."""
    index = test.rendezvous.index
    for pair in planned:
        if index in pair:
            key = f"pair/{round}/{pair[0]}-{pair[1]}"
            share = work_together(test.rendezvous, pair, key, own_devices, test.measure_s, test.deadline_s)
            board.put(f"share/{round}/{index}", asdict(share))


@contextmanager
def _hosting(rendezvous: Rendezvous) -> Iterator[None]:
    """The store's server in a process of its own, so that this one has no threads and may fork."""
    listener = listen(rendezvous)
    context = multiprocessing.get_context("fork")
    host = context.Process(target=_host, args=(listener, os.getpid()))
    host.start()
    listener.close()
    try:
        yield
    finally:
        host.kill()
        host.join(BURIAL_S)


def _host(listener: socket.socket, parent: int) -> None:
    tie_to_parent(parent)
    kept = host_store(listener)
    while kept:
        signal.pause()
