"""A process to which rankscope attaches. It is forked from the test process, so torch is already imported."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankscope_attach
import telemetry

LIMIT_S = 60


def train() -> list[float]:
    """Losses of a small model."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for (batch,) in DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=8):
        loss = nn.functional.mse_loss(model(batch), batch.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an attached process ended."""

    result: Any
    """Return value of its work. For a training: the losses."""
    lines: list[str]
    """Lines on stderr."""
    spool: Path


def attached(
    folder: Path, breaks: Callable[[], Any] = lambda: None, work: Callable[[], Any] = train, **variables: str
) -> Ended:
    """Run ``work`` in a forked process, by default a training. rankscope attaches as after an import of torch."""
    (ended,) = attached_together(folder, [variables], work, breaks)
    return ended


def attached_together(
    folder: Path, each: list[dict[str, str]], work: Callable[[], Any], breaks: Callable[[], Any] = lambda: None
) -> list[Ended]:
    """The same with several processes at once. ``each``: the environment variables of each process."""
    spool = folder / "spool"
    forking = multiprocessing.get_context("fork")
    children = []
    for number, variables in enumerate(each):
        given = {"RANKSCOPE": "1", "RANKSCOPE_RUN": "one", "RANKSCOPE_SPOOL": str(spool), **variables}
        receiver, sender = forking.Pipe(duplex=False)
        log = folder / f"stderr{number}"
        child = forking.Process(target=_work_attached, args=(log, given, breaks, work, sender))
        child.start()
        children.append((child, receiver, log))
    ended = []
    try:
        for child, receiver, log in children:
            assert receiver.poll(LIMIT_S), log.read_text()
            result = receiver.recv()
            child.join(LIMIT_S)
            assert child.exitcode == 0
            ended.append(Ended(result=result, lines=log.read_text().splitlines(), spool=spool))
    finally:
        for child, _, _ in children:
            child.kill()
    return ended


def _work_attached(
    log: Path, variables: dict[str, str], breaks: Callable[[], Any], work: Callable[[], Any], sender: Any
) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
    sys.stderr = os.fdopen(2, "w")
    torch.set_num_threads(1)
    os.environ.update(variables)
    breaks()
    rankscope_attach.attach()
    result = work()
    telemetry.stop()
    sender.send(result)
