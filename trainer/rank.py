"""The main function of one rank: records its session, joins the process group, trains, and ends."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

import telemetry
from telemetry.errors import RankscopeError
from telemetry.labels import label_meta
from telemetry.printable import one_line, write_lines
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.records import RANK_FAILED
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.finite import NotFiniteError
from trainer.config import TrainConfig
from trainer.data.batches import Batches, BatchSource
from trainer.data.host_memory import LoaderAddress
from trainer.data.shared_batches import SharedBatches
from trainer.data.tokens import Tokens, load_tokens
from trainer.faults.act import hook_for
from trainer.faults.comm_delay import delay_operations
from trainer.faults.inject import FIRED_NAME, StartFile, parse_fault
from trainer.loop import Trainer
from trainer.output import PROGRESS
from trainer.parallel.mesh import Grid, make_grid
from trainer.progress import Progress
from trainer.rank_messages import About, sender_over
from trainer.rank_status import ENDED_EARLY, FAILED, NOT_FINITE
from trainer.run_options import RunOptions

STORE_SETTING = "GLOO_ENABLE_STORE_V2_API"
"""Environment variable of gloo: read all addresses with one operation of the store. If a store lacks that operation, as
a file does, gloo reads one address at a time."""
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of a rank in the job, and how it finds the other ranks."""

    rank: int
    local_rank: int
    world_size: int
    init_method: str
    """``file://...`` from our own launcher, ``env://`` under torchrun."""
    local_world_size: int = 1
    """Number of ranks on this host, under torchrun. It is also 1 if the launcher does not provide it."""
    messages: Connection | None = None
    """The connection to the process that started this rank (``rank_messages.py``). None under torchrun, which shows
    what ranks print."""

    @classmethod
    def from_torchrun(cls) -> "Seat":
        """The seat from the environment that torchrun sets."""
        rank, local_rank, world_size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return cls(
            rank=rank,
            local_rank=local_rank,
            world_size=world_size,
            init_method="env://",
            local_world_size=local_world_size,
        )

    @property
    def first_of_host(self) -> int:
        """The first rank of this host. It is this rank if the number of ranks on the host is not known."""
        return self.rank if self.local_world_size == 1 else self.rank - self.local_rank

    @property
    def ranks_of_host(self) -> range:
        return range(self.first_of_host, self.first_of_host + self.local_world_size)

    @property
    def leads_host(self) -> bool:
        return self.rank == self.first_of_host


Data = Tokens | LoaderAddress | None
"""Where a rank gets its batches from: from tokens that it reads itself, or from the loader of this host. If None, the
rank loads the tokens, or asks the first rank of this host for the loader, as the config says."""


def train_rank(seat: Seat, config: TrainConfig, options: RunOptions, data: Data = None) -> bool:
    """Train as one rank until the last step. Returns whether it ended earlier, because the job was asked to end."""
    device = _device(config, seat)
    with _session(seat, config, options), _process_group(seat, config, options, device):
        grid = make_grid(config.parallel.topology, device)
        fault = parse_fault(options.fault, grid.topology, num_steps=config.num_steps)
        start_file = StartFile(path=options.out / FIRED_NAME, rank=seat.rank)
        if options.comm_delay_s:
            delay_operations(grid, options.comm_delay_s)
        trainer = Trainer(config, grid, hook_for(fault, rank=seat.rank, device=device, start_file=start_file))
        progress = Progress(config, _progress_path(grid, options))
        send = sender_over(seat.messages)
        checkpoints = Checkpoints(config, options, partial(send, About.CHECKPOINT), partial(send, About.SPACE))
        ended_early = trainer.run(_batches(seat, config, data), progress, checkpoints)
        checkpoints.finish()
        progress.close()
    return ended_early


def run_and_exit(seat: Seat, config: TrainConfig, options: RunOptions, data: Data) -> int:
    """Call :func:`train_rank`, and return the exit status of the process. On failure, write the reason to stderr and
    end the process at once.

    A failed rank does not destroy its groups. That would wait for peers that wait in collectives.
    """
    try:
        return ENDED_EARLY if train_rank(seat, config, options, data) else 0
    except NotFiniteError as error:
        _end(seat, NOT_FINITE, error, str(error))
    except RankscopeError as error:
        _end(seat, FAILED, error, str(error))
    except BaseException as error:
        _end(seat, FAILED, error, traceback.format_exc())


def _batches(seat: Seat, config: TrainConfig, data: Data) -> BatchSource:
    if data is None and not config.data.shared_loader:
        data = load_tokens(config.data, vocab_size=config.model.vocab_size)
    if data is None or (isinstance(data, LoaderAddress) and seat.local_world_size > 1):
        data = _address_on_host(seat, data)
    if isinstance(data, LoaderAddress):
        return SharedBatches(data, config, rank=seat.rank)
    return Batches(data, config, dp_index=config.parallel.topology.place(seat.rank).dp)


def _address_on_host(seat: Seat, own: LoaderAddress | None) -> LoaderAddress:
    """The address of the loader that the first rank of this host has started."""
    store, key = distributed_c10d._get_default_store(), f"rankscope/data-loader/{seat.first_of_host}"
    if own is None:
        return LoaderAddress.decode(store.get(key))
    store.set(key, own.encode())
    return own


def _end(seat: Seat, status: int, error: BaseException, words: str) -> NoReturn:
    write_lines(words)
    sender_over(seat.messages)(About.FAILURE, _reason_of(error))
    telemetry.stop()
    sys.stderr.flush()
    os._exit(status)


def _reason_of(error: BaseException) -> str:
    """The reason of a failure on one line."""
    return one_line(error.message if isinstance(error, RankscopeError) else f"{type(error).__name__}: {error}")


def _device(config: TrainConfig, seat: Seat) -> torch.device:
    if config.device == "cpu":
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", seat.local_rank)
    torch.cuda.set_device(device)
    return device


@contextmanager
def _session(seat: Seat, config: TrainConfig, options: RunOptions) -> Iterator[None]:
    if not options.telemetry:
        yield
        return
    telemetry.start(
        run=options.run_id,
        attempt=options.attempt,
        topology=config.parallel.topology,
        rank=seat.rank,
        local_rank=seat.local_rank,
        spool=options.spool,
        collector=options.collector,
        agent=seat.init_method == "env://",
        device=config.device,
        meta={
            "recipe": config.recipe,
            "torch": torch.__version__,
            **_collectives(config),
            **label_meta(options.labels),
        },
    )
    try:
        yield
    except Exception as error:
        telemetry.mark(RANK_FAILED, _reason_of(error))
        raise
    finally:
        telemetry.stop()


def _collectives(config: TrainConfig) -> dict[str, str]:
    """The backend and the timeout of collectives. Detectors compare the length of a flap with the timeout."""
    backend = BACKENDS[config.device]
    usual = distributed_c10d.default_pg_nccl_timeout if backend == "nccl" else distributed_c10d.default_pg_timeout
    seconds = config.collective_timeout_s or (usual.total_seconds() if usual is not None else 0)
    return {"backend": backend, "collective_timeout_s": f"{seconds:g}"}


@contextmanager
def _process_group(seat: Seat, config: TrainConfig, options: RunOptions, device: torch.device) -> Iterator[None]:
    """Create the default group, traced if telemetry is on. After a failure it is not destroyed
    (:func:`run_and_exit`)."""
    backend = BACKENDS[config.device]
    if options.telemetry:
        backend = register_traced_backend(backend)
    few_store_operations()
    if config.collective_timeout_s is not None:
        _fail_groups_after(timedelta(seconds=config.collective_timeout_s))
    dist.init_process_group(
        backend,
        init_method=seat.init_method,
        rank=seat.rank,
        world_size=seat.world_size,
        device_id=device if device.type == "cuda" else None,
    )
    yield
    dist.destroy_process_group()


def few_store_operations() -> None:
    """Let gloo read the addresses of all members of a group at once. By default it asks for one after the other, so a
    rank asks the store of the job as often as there are ranks. Call this before a group is created."""
    os.environ.setdefault(STORE_SETTING, "1")


def _fail_groups_after(timeout: timedelta) -> None:
    """Set the timeout of every group that this process creates from now on.

    A mesh creates its groups with the default timeout of torch, not with that of the default group. The sends and
    receives of gloo always use the timeout with which their group was created.
    """
    distributed_c10d.default_pg_timeout = timeout
    distributed_c10d.default_pg_nccl_timeout = timeout


def _progress_path(grid: Grid, options: RunOptions) -> Path | None:
    return options.out / PROGRESS if grid.reports else None
