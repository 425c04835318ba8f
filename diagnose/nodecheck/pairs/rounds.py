"""The paired test on one node: join, work in each round, read the verdict.

In a round, both nodes of a pair compute a matrix product and all-reduce with each other, repeatedly:

node a   [ product ][ all-reduce ][ product ][ all-reduce ] ..      one process for each GPU, or one for the CPU
node b   [  product   ][ reduce  ][  product   ][ reduce  ] ..
"""

import itertools
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist

from diagnose.nodecheck.child_processes import KILL_WAIT_S, Report, run_bounded
from diagnose.nodecheck.collective import Member, all_reduce_for, connect_store, host_store, join
from diagnose.nodecheck.devices import gpus, is_gpu
from diagnose.nodecheck.network import HINT, Rendezvous, interface_towards, listen
from diagnose.nodecheck.pairs.coordinator import Board, Coordinator
from diagnose.nodecheck.pairs.paired_test import MARGIN_S, PairedTest, RoundBegun
from diagnose.nodecheck.pairs.plan import Pair
from diagnose.nodecheck.pairs.records import read_verdict
from telemetry.errors import UnreachableError, UsageError
from telemetry.process.child_process import tie_to_parent

SIZE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The result of one node in a pair: means over the iterations of its slowest device, so that pauses count."""

    seconds: float | None
    own_s: float = 0.0
    reason: str = ""
    """Why it failed."""


def take_part(test: PairedTest, report: Report) -> None:
    """Run the whole test on this node. Node 0 also hosts the store.

    Raises:
        UsageError: the endpoint is not of this host, another node has this index, or this node started too late.
        UnreachableError: node 0 does not answer.
    """
    with nullcontext() if test.rendezvous.index else _hosting(test.rendezvous):
        _play_rounds(test, report)


def _play_rounds(test: PairedTest, report: Report) -> None:
    # In a separate process: a driver can hang, and after its initialisation no fork could use it.
    (found,) = run_bounded([gpus], test.deadline_s)
    own_devices = found.value or ["cpu"]
    board = _join_board(test.rendezvous, len(own_devices))
    coordinator = Coordinator(board, test) if test.rendezvous.index == 0 else None
    for round in itertools.count():
        if coordinator:
            coordinator.plan(round)
        plan = _read_plan(board, test, round)
        if plan["verdict"]:
            break
        planned = tuple((first, second) for first, second in plan["pairs"])
        report(RoundBegun(round=round, pairs=planned))
        _play(test, board, round, planned, own_devices[: plan["num_devices"]])
    board.put(f"read/{test.rendezvous.index}", True)
    if coordinator:
        coordinator.wait_for_readers()
    report(read_verdict(plan["verdict"]))  # last, because the reader of the report may end this process


def _join_board(rendezvous: Rendezvous, num_devices: int) -> Board:
    try:
        board = Board(connect_store(rendezvous.host, rendezvous.port, rendezvous.patience_s), rendezvous)
    except dist.DistError as error:
        raise UnreachableError(f"no answer from node 0 at {rendezvous.endpoint}", hint=HINT) from error
    if not board.take_seat(rendezvous.index):
        raise UsageError(f"another node already has --node-rank {rendezvous.index}", hint=HINT)
    board.put(f"here/{rendezvous.index}", {"host": socket.gethostname(), "num_devices": num_devices})
    return board


def _read_plan(board: Board, test: PairedTest, round: int) -> dict[str, Any]:
    wait_s = test.rendezvous.patience_s if round == 0 else 2 * test.deadline_s
    plan: dict[str, Any] | None = board.get(f"plan/{round}", wait_s + 2 * MARGIN_S)
    if plan is None:
        raise board.gone()
    if test.rendezvous.index not in plan["present"]:
        raise UsageError(
            f"node {test.rendezvous.index} started too late: the test has begun",
            hint="start all nodes within one minute",
        )
    return plan


def _play(test: PairedTest, board: Board, round: int, planned: Sequence[Pair], own_devices: Sequence[str]) -> None:
    """Do this node's part of a round, unless it sits out."""
    index = test.rendezvous.index
    for pair in planned:
        if index in pair:
            share = _work_together(test, pair, f"pair/{round}/{pair[0]}-{pair[1]}", own_devices)
            board.put(f"share/{round}/{index}", asdict(share))


def _work_together(test: PairedTest, pair: Pair, key: str, devices: Sequence[str]) -> Share:
    """Do the work of a round with the other node of ``pair``. Both nodes call this with the same ``key``."""
    rendezvous = test.rendezvous
    interface = rendezvous.interface or interface_towards(rendezvous.host)
    members = [
        Member(
            rank=pair.index(rendezvous.index) * len(devices) + place,
            world_size=2 * len(devices),
            device=device,
            interface=interface,
            timeout_s=test.deadline_s,
        )
        for place, device in enumerate(devices)
    ]
    outcomes = run_bounded([partial(_iterate, test, member, key) for member in members], test.deadline_s)
    if errors := [outcome.error for outcome in outcomes if outcome.error]:
        return Share(seconds=None, reason=errors[0])
    shares: list[Share] = [outcome.value for outcome in outcomes]
    return max(shares, key=lambda share: (share.seconds is None, share.seconds or 0.0))


def _iterate(test: PairedTest, member: Member, key: str) -> Share:
    store = connect_store(test.rendezvous.host, test.rendezvous.port, member.timeout_s)
    join(dist.PrefixStore(key, store), member)
    size = 4096 if is_gpu(member.device) else 512
    a = torch.randn(size, size, device=member.device)
    b, out = torch.randn_like(a), torch.empty_like(a)
    result = all_reduce_for(test.measure_s, member, SIZE_BYTES, lambda: torch.mm(a, b, out=out))
    if not result.is_right:
        return Share(seconds=None, reason="the sum of the all-reduce is wrong")
    return Share(seconds=fmean(result.whole_s), own_s=fmean(result.own_s))


@contextmanager
def _hosting(rendezvous: Rendezvous) -> Iterator[None]:
    """Run the store's server during the block, in a separate process: this process then has no threads and can fork."""
    listener = listen(rendezvous)
    host = multiprocessing.get_context("fork").Process(target=_host, args=(listener, os.getpid()))
    host.start()
    listener.close()
    try:
        yield
    finally:
        host.kill()
        host.join(KILL_WAIT_S)


def _host(listener: socket.socket, parent: int) -> None:
    tie_to_parent(parent)
    store = host_store(listener)
    while store:
        signal.pause()
