"""A forked process of one rank to which rankscope attaches as after an import of torch."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import torch

import rankscope_attach
import telemetry
from tests.telemetry.recording import Recorded, recorded

LIMIT_S = 60


def attached(spool: Path, train: Callable[[], None], **variables: str) -> Recorded:
    """The records of a process that runs ``train``."""
    given = {"RANKSCOPE": "1", "RANKSCOPE_RUN": "one", "RANKSCOPE_SPOOL": str(spool), **variables}
    child = multiprocessing.get_context("fork").Process(target=_train, args=(given, train))
    child.start()
    try:
        child.join(LIMIT_S)
        assert child.exitcode == 0
    finally:
        child.kill()
    return recorded(spool)


def _train(variables: dict[str, str], train: Callable[[], None]) -> None:
    torch.set_num_threads(1)  # a fork of a process with threads of torch hangs
    os.environ.update(variables)
    rankscope_attach.attach()
    train()
    telemetry.stop()
