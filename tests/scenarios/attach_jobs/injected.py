"""Added to a training script by a trial: a fault in one rank, and a file with the exact losses.

TRIAL_OUT: folder of the files. TRIAL_FAULT: slow, stop or empty. TRIAL_RANK: the rank at fault. TRIAL_FACTOR: how many
times as long as without the fault a slow rank works in a forward. TRIAL_STOP: number of the forward with gradients
after which a rank stops, and seconds from there to the stop.

This file does not use rankscope. The scripts import it from their own folder.
"""

import os
import signal
import threading
from pathlib import Path
from time import thread_time
from typing import Any

import torch
from torch import nn

OUT = Path(os.environ["TRIAL_OUT"])
FIRED = "fired"
SIZE = 64
"""Of the matrices that a slow rank multiplies."""


def inject(model: nn.Module, rank: int) -> None:
    """Put the fault of the trial into this rank, if it is the rank at fault. Results do not change."""
    fault = os.environ.get("TRIAL_FAULT", "")
    if str(rank) == os.environ.get("TRIAL_RANK"):
        if fault == "slow":
            _SlowForward(model, float(os.environ["TRIAL_FACTOR"]))
        if fault == "stop":
            _Stop(model, *os.environ["TRIAL_STOP"].split())


def note_loss(rank: int, loss: float) -> None:
    """Append the bits of a loss to the file of this rank."""
    with (OUT / f"losses-{rank}").open("a") as file:
        file.write(f"{float(loss).hex()}\n")


class _SlowForward:
    """Each forward takes ``factor`` times its own processor time, measured anew each time. The processor is busy."""

    def __init__(self, model: nn.Module, factor: float) -> None:
        self._more = factor - 1
        self._began = 0.0
        self._matrix = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0)) / SIZE
        model.register_forward_pre_hook(self._begin)
        model.register_forward_hook(self._end)

    def _begin(self, *_: Any) -> None:
        self._began = thread_time()

    def _end(self, *_: Any) -> None:
        now = thread_time()
        end = now + (now - self._began) * self._more
        while thread_time() < end:
            self._matrix @ self._matrix


class _Stop:
    """The whole process stops (SIGSTOP) some time after a forward, at any point of the code."""

    def __init__(self, model: nn.Module, number: str, seconds: str) -> None:
        self._left, self._seconds = int(number), float(seconds)
        model.register_forward_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self._left -= 1
            if self._left == 0:
                threading.Timer(self._seconds, _stop).start()


def _stop() -> None:
    (OUT / FIRED).touch()
    os.kill(os.getpid(), signal.SIGSTOP)
