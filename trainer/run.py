"""Read this first: how a training is started.

rankscope train --+-- RANK in the environment (torchrun, a driver): this process is one rank --> rank.train_rank
                  '-- else: launch.run_ranks starts every rank of the grid on this machine ----> rank.train_rank each

    rank.py       one rank: session, process group, grid, trainer
    loop.py       what a step is
    checkpoint/   snapshots in host memory, files, exact resume
    model/        the transformer, cut into pipeline stages       parallel/    mesh, tensor, data, pipeline
    optim/        AdamW and LAMB on shards, schedule              data/        text to batches
    faults/       faults to inject                                config.py    every setting; recipes.py whole ones
    rank_messages.py why a rank fails, for the process that started it
    techniques.py what `rankscope ablate` adds in each row        run_options.py    name, place, collector, fault
"""

import os
import socket
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from telemetry.errors import UsageError
from telemetry.process.child_process import end_with_torchrun
from telemetry.process.signals import default_on_ending
from telemetry.record.reader import find_rank_dirs
from telemetry.run_names import usable_run_name
from telemetry.settings import RecordingSettings
from trainer.checkpoint.claim import claimed
from trainer.checkpoint.folder import About
from trainer.config import TrainConfig
from trainer.data.batches import check_data
from trainer.data.loader_keeper import LoaderProcess
from trainer.data.tokens import Tokens, load_tokens
from trainer.faults.inject import parse_fault, write_truth
from trainer.launch import run_ranks
from trainer.model.computing import check_compute
from trainer.output import SPOOL
from trainer.rank import Seat, run_and_exit
from trainer.run_options import RunOptions

TRUTH_NAME = "truth.json"


def launch(config: TrainConfig, options: RunOptions) -> int:
    """Train. Returns 0 if all steps were done, 1 if a rank failed, 128 + n if signal n ended the training.

    Under torchrun this process is a rank. Then it ends with status 65 after a step whose loss or gradient norm is not
    finite (``rank_status.py``).

    The injected fault is written to ``OUT/truth.json`` before the first step.

    Raises:
        UsageError: settings, data, the grid or the checkpoints do not fit, before any rank is started.
    """
    given, options = options, _completed(config, options)
    seat = _torchrun_seat(config)
    fault = parse_fault(options.fault, config.parallel.topology, num_steps=config.num_steps)
    if config.device == "cpu":
        check_compute(config.compute, torch.device("cpu"))  # a launcher must not initialise CUDA: its ranks are forks
    tokens = _checked_tokens(config, seat)
    if seat is None or seat.rank == 0:
        host = os.environ.get("RANKSCOPE_HOST") or socket.gethostname()
        topology = config.parallel.topology
        write_truth(options.out / TRUTH_NAME, fault, host=host, num_steps=config.num_steps, topology=topology)
    with _claimed_checkpoints(config, options, seat) as newest:
        if seat is None:
            return run_ranks(config, _continued(given, options, newest), tokens)
        default_on_ending()
        end_with_torchrun()
        data = (
            LoaderProcess(config, seat.ranks_of_host, tokens).address
            if tokens is not None and config.data.shared_loader
            else tokens
        )
        return run_and_exit(seat, config, options, data)


def _claimed_checkpoints(
    config: TrainConfig, options: RunOptions, seat: Seat | None
) -> AbstractContextManager[About | None]:
    """Hold the folder of checkpoints for the whole job, in the launcher or in rank 0. Yields the newest checkpoint."""
    if options.checkpoints is None or (seat is not None and seat.rank != 0):
        return nullcontext()
    return claimed(options.checkpoints, config)


def _checked_tokens(config: TrainConfig, seat: Seat | None) -> Tokens | None:
    """The tokens, after a check of the first batch. None for a rank whose batches come from a loader that another rank
    of this host starts."""
    if seat is not None and not seat.leads_host and config.data.shared_loader:
        return None
    tokens = load_tokens(config.data, vocab_size=config.model.vocab_size)
    check_data(tokens, config)
    return tokens


def _continued(given: RunOptions, options: RunOptions, newest: About | None) -> RunOptions:
    """``options`` as the next attempt of the run that wrote the checkpoints, unless ``given`` says otherwise."""
    named = given.run_id or os.environ.get("RANKSCOPE_RUN")
    if newest is None or given.attempt is not None or named not in (None, newest.run_id):
        return options
    assert options.spool is not None
    attempts = [int(folder.parent.name) for folder in find_rank_dirs(options.spool, newest.run_id)]
    return replace(options, run_id=newest.run_id, attempt=max([newest.attempt, *attempts]) + 1)


def _torchrun_seat(config: TrainConfig) -> Seat | None:
    """The seat of this process if another launcher, such as torchrun, started it as a rank; otherwise None."""
    if "RANK" not in os.environ:
        return None
    seat, topology = Seat.from_torchrun(), config.parallel.topology
    if seat.world_size != topology.world_size:
        raise UsageError(
            f"the job has {seat.world_size} processes, but the grid has {topology.world_size} ranks",
            hint=f"start dp x pp x tp processes: {topology.dp} x {topology.pp} x {topology.tp}",
        )
    return seat


def _completed(config: TrainConfig, options: RunOptions) -> RunOptions:
    """``options`` with run, attempt and spool filled in, so that the ranks and the agent use the same."""
    found = RecordingSettings.from_environment()
    launched = "RANK" in os.environ or "RANKSCOPE_RUN" in os.environ
    name = usable_run_name(found.run_id) if launched else f"{config.recipe}-{time.strftime('%Y%m%d-%H%M%S')}"
    attempt = found.attempt if options.attempt is None else options.attempt
    spool = options.spool or options.out / SPOOL
    return replace(options, run_id=options.run_id or name, attempt=attempt, spool=spool)
