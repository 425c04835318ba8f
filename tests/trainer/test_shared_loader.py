"""One process of a host prepares the batches of all its ranks. The batches are those that each rank would read."""

import ctypes
import mmap
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from telemetry.errors import UsageError
from tests.deadline import until
from tests.trainer.jobs import alive, children, name_of, rank_log, run_job, small_config, start_job
from tests.trainer.recorded import marks_of
from trainer.config import TrainConfig
from trainer.data.batches import Batches
from trainer.data.host_memory import LoaderAddress
from trainer.data.loader_keeper import LOADER, LoaderProcess
from trainer.data.shared_batches import SharedBatches
from trainer.data.tokens import Text, TokenFile, Tokens, load_tokens

TEXT = np.frombuffer(bytes(range(256)) * 40, dtype=np.uint8)
FOREVER = 100_000
GRID = {"dp": 2, "pp": 2, "tp": 2}
MIB = 2**20


@contextmanager
def loading(
    config: TrainConfig, ranks: range, tokens: Tokens = TEXT, *, silent_s: float = 30.0
) -> Iterator[LoaderProcess]:
    process = LoaderProcess(config, ranks, tokens, silent_s=silent_s)
    try:
        yield process
    finally:
        process.end()


def loader_of(process: LoaderProcess) -> int:
    """The pid of the running loader."""
    found: list[int] = []

    def is_there() -> bool:
        with suppress(FileNotFoundError):  # it has just ended
            found[:] = [pid for pid in children(process.address.pid) if name_of(pid) == LOADER and alive(pid)]
        return bool(found)

    until(is_there, what="a loader")
    return found[0]


def shared_step(sources: dict[int, SharedBatches], config: TrainConfig, step: int) -> None:
    """Every rank takes the batch of ``step``, which is that of its data-parallel index."""
    for rank, source in sources.items():
        own = Batches(TEXT, config, dp_index=config.parallel.topology.place(rank).dp).at(step)
        taken = source.at(step)
        assert torch.equal(taken.inputs, own.inputs)
        assert torch.equal(taken.targets, own.targets)


def take(source: SharedBatches, steps: range) -> None:
    for step in steps:
        source.at(step)


def test_ranks_get_their_batches_although_the_loader_is_killed_or_stopped(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The first step is in the middle, as after a restart. After SIGSTOP the loader does not respond."""
    config, ranks = small_config(num_steps=FOREVER, **GRID), range(8)
    with loading(config, ranks, silent_s=4.0) as process:
        sources = {rank: SharedBatches(process.address, config, rank=rank) for rank in ranks}
        for step in range(5, 20):
            number = {8: signal.SIGKILL, 12: signal.SIGSTOP, 16: signal.SIGKILL}.get(step)
            if number is not None:
                os.kill(loader_of(process), number)
            shared_step(sources, config, step)
    printed = capfd.readouterr().err
    assert printed.count("the data loader was killed by SIGKILL; another one starts") >= 2
    assert printed.count("the data loader did not respond for 4 s and was killed; another one starts") >= 1


def test_loader_that_always_crashes_raises_an_error_with_the_reason_in_every_rank() -> None:
    config = small_config(num_steps=FOREVER, dp=2)

    class Deadly(TokenFile):
        def __init__(self) -> None: ...

        def __len__(self) -> int:
            return len(TEXT)

        def __getitem__(self, chosen: slice) -> Text:
            os.kill(os.getpid(), signal.SIGBUS)
            raise AssertionError

    with loading(config, range(2), Deadly()) as process:
        for rank in range(2):
            source = SharedBatches(process.address, config, rank=rank)
            with pytest.raises(UsageError, match="failed 5 times in a row; the last one was killed by SIGBUS"):
                source.at(0)


def test_token_outside_the_vocabulary_is_reported_to_ranks_with_file_and_position(tmp_path: Path) -> None:
    tokens = np.zeros(5000, dtype="<u2")
    tokens[1:] = 300
    tokens.tofile(tmp_path / "tokens.bin")
    config = small_config(num_steps=FOREVER)
    message = rf"token 300 at position \d+ of {tmp_path}/tokens.bin is outside"
    with (
        loading(config, range(1), TokenFile(tmp_path / "tokens.bin")) as process,
        pytest.raises(UsageError, match=message),
    ):
        SharedBatches(process.address, config, rank=0).at(0)


def test_killed_keeper_ends_the_loader_and_raises_an_error_in_ranks() -> None:
    config = small_config(num_steps=FOREVER)
    with loading(config, range(1)) as process:
        source, loader = SharedBatches(process.address, config, rank=0), loader_of(process)
        source.at(0)
        os.kill(process.address.pid, signal.SIGKILL)
        until(lambda: not alive(loader), what="the loader gone")
        with pytest.raises(UsageError, match="which restarts the data loader, has ended"):
            take(source, range(1, 10))


def test_keeper_and_loader_end_when_their_starter_is_killed() -> None:
    reading, writing = os.pipe()
    starter = os.fork()
    if not starter:
        try:
            process = LoaderProcess(small_config(), range(1), TEXT)
            os.write(writing, str(process.address.pid).encode())
            while True:
                signal.pause()
        finally:
            os._exit(1)
    keeper = int(os.read(reading, 20))
    until(lambda: len(children(keeper)) == 1, what="a loader")
    (loader,) = children(keeper)
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    until(lambda: not alive(keeper) and not alive(loader), what="both gone")
    os.close(reading)
    os.close(writing)


def test_loader_address_of_another_process_is_rejected() -> None:
    """For example, if a new process has the old pid and the same descriptor numbers."""
    config = small_config()
    with loading(config, range(1)) as process:
        forged = replace(LoaderAddress.decode(process.address.encode()), born="another life")
        with pytest.raises(
            UsageError,
            match=r"cannot open the memory of the data loader: .* is not the process that "
            r"started",
        ):
            SharedBatches(forged, config, rank=0)
        swapped = replace(process.address, memory=process.address.requests)
        with pytest.raises(UsageError, match="is not one of a loader of this user"):
            SharedBatches(swapped, config, rank=0)


def test_data_file_truncated_during_training_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.zeros(500_000, dtype="<u2").tofile(path)
    config = small_config(num_steps=FOREVER)
    tokens = load_tokens(replace(config.data, path=path), vocab_size=256)
    with (
        loading(config, range(1), tokens) as process,
        closing(SharedBatches(process.address, config, rank=0)) as source,
    ):
        source.at(0)
        os.truncate(path, 5000)
        with pytest.raises(UsageError, match="was replaced, or its size changed, after the training started"):
            take(source, range(1, 200))


def resident_bytes(path: Path) -> int:
    """Bytes of the file in the page cache, whichever process read them."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as pages:
        states = (ctypes.c_ubyte * (size // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(pages)
        address = ctypes.c_void_p(ctypes.addressof(start))
        assert ctypes.CDLL(None).mincore(address, ctypes.c_size_t(size), states) == 0
        del start
    return int((np.frombuffer(states, dtype=np.uint8) & 1).sum()) * mmap.PAGESIZE


def openers(path: Path) -> set[int]:
    """Processes that have the file open or mapped."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            opened = {os.readlink(link) for link in (folder / "fd").iterdir()}
            if str(path) in opened or str(path) in (folder / "maps").read_text():
                found.add(int(folder.name))
    return found


@pytest.mark.gloo
def test_one_loader_opens_a_10_gb_file_reads_little_of_it_and_restarts_when_killed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    path.touch()
    os.truncate(path, 10 * 10**9)
    config = small_config(num_steps=FOREVER, dp=2)
    job = start_job(replace(config, data=replace(config.data, path=path)), tmp_path / "out")
    try:
        until(lambda: job.steps_done() >= 2 or job.process.poll() is not None, seconds=90, what="two steps")
        assert openers(path) == set(job.loader_pids())
        assert len(job.loader_pids()) == 1
        assert resident_bytes(path) < 100 * MIB
        killed = job.loader_pids()
        os.kill(killed[0], signal.SIGKILL)
        steps = job.steps_done()
        until(lambda: job.steps_done() >= steps + 5, seconds=60, what="five more steps")
        assert job.loader_pids() != killed
    finally:
        job.process.kill()
        words = job.finish().words
    assert "the data loader was killed by SIGKILL; another one starts" in words
    assert "data-loader-restarted" in dict(marks_of(tmp_path / "out", 0))


@pytest.mark.gloo
def test_losses_are_bit_identical_without_the_shared_loader(tmp_path: Path) -> None:
    config = small_config(num_steps=3, dp=2)
    shared = run_job(config, tmp_path / "shared")
    own = run_job(replace(config, data=replace(config.data, shared_loader=False)), tmp_path / "own")
    assert shared.losses == own.losses
    assert len(own.losses) == 3


@pytest.mark.gloo
@pytest.mark.long
def test_losses_are_bit_identical_under_torchrun(tmp_path: Path) -> None:
    """Local rank 0 starts the loader, and the others find it through the store."""
    config = small_config(num_steps=3, dp=2, tp=2)
    own = run_job(replace(config, data=replace(config.data, shared_loader=False)), tmp_path / "own")
    launched = start_job(config, tmp_path / "torchrun", under_torchrun=4).finish()
    assert launched.status == 0, launched.words + rank_log(tmp_path, 0)
    assert own.losses == launched.losses
