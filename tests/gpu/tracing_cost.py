"""What tracing costs a training on a GPU: blocks of steps with and without recording, in turn, in one process.

The steps are those of the bundled trainer, with the recipe ``one_gpu``. The model, its memory and the clocks of the GPU
are the same in both blocks of a pair.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles

import torch
import torch.distributed as dist

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.topology import Topology
from tests.gpu.outcome import say
from tests.trainer.recorded import spans_of
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.config import TrainConfig
from trainer.data.batches import Batches, Loader
from trainer.data.tokens import load_tokens
from trainer.faults.act import Healthy
from trainer.loop import Trainer
from trainer.output import PROGRESS
from trainer.parallel.mesh import make_grid
from trainer.progress import DeviceReadout, HostReadout, Progress
from trainer.rank import BACKENDS
from trainer.recipes import one_gpu
from trainer.run_options import RunOptions

PAIRS, WARM_UP = 50, 5
STEPS = 2
"""Steps of a block."""
MAX_RATIO = 1.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Times of pairs of blocks."""

    traced_s: list[float]
    plain_s: list[float]
    spans_per_block: int
    """Number of spans in a block with recording."""

    @property
    def ratios(self) -> list[float]:
        """Time with recording, divided by time without recording, of each pair."""
        return [traced / plain for traced, plain in zip(self.traced_s, self.plain_s, strict=True)]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        cost = measure(Path(name), small_steps(one_gpu()))
    lower, ratio, upper = quantiles(cost.ratios, n=4)
    figures = {
        "ratio": round(ratio, 5),
        "quartiles": [round(lower, 5), round(upper, 5)],
        "step_ms": round(median(cost.plain_s) / STEPS * 1e3, 3),
        "spans_per_second": round(cost.spans_per_block / median(cost.traced_s)),
        "pairs": PAIRS,
    }
    good = ratio <= MAX_RATIO
    say("passed" if good else "failed", figures, "" if good else f"the ratio must not be above {MAX_RATIO}")


def small_steps(config: TrainConfig) -> TrainConfig:
    """Two microbatches in each step, so that there are many blocks."""
    return replace(config, parallel=replace(config.parallel, num_microbatches=2))


def measure(folder: Path, config: TrainConfig, pairs: int = PAIRS) -> Cost:
    """Times of ``pairs`` pairs of blocks, after ``WARM_UP`` pairs that do not count. The order in a pair alternates."""
    config = replace(config, num_steps=(WARM_UP + pairs) * 2 * STEPS)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    with _blocks(folder, config) as blocks, _no_automatic_collections():
        for number in range(WARM_UP + pairs):
            for traced in (True, False) if number % 2 else (False, True):
                seconds[traced].append(blocks.seconds(traced=traced))
    spans_of_last_block = spans_of(folder)[0]
    return Cost(
        traced_s=seconds[True][WARM_UP:],
        plain_s=seconds[False][WARM_UP:],
        spans_per_block=len(spans_of_last_block),
    )


@contextmanager
def _blocks(folder: Path, config: TrainConfig) -> Iterator["_Blocks"]:
    """A training of one rank that has done no step."""
    device = torch.device("cuda", 0) if config.device == "cuda" else torch.device("cpu")
    backend = register_traced_backend(BACKENDS[config.device])
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=0, world_size=1)
    trainer = Trainer(config, make_grid(Topology(), device), Healthy())
    batches = Batches(load_tokens(config.data, vocab_size=config.model.vocab_size), config, dp_index=0)
    with (
        Loader(batches.at, steps=range(config.num_steps), depth=config.data.queue_depth, device=device) as loader,
        closing(Progress(config, folder / PROGRESS)) as progress,
    ):
        yield _Blocks(trainer, loader, progress, folder)
    dist.destroy_process_group()


@contextmanager
def _no_automatic_collections() -> Iterator[None]:
    """Collect garbage as the trainer does: only in some steps, and without the objects that exist now."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


class _Blocks:
    """Does blocks of consecutive steps."""

    def __init__(self, trainer: Trainer, loader: Loader, progress: Progress, folder: Path) -> None:
        self._trainer = trainer
        self._loader = loader
        self._progress = progress
        self._folder = folder
        self._checkpoints = Checkpoints(trainer.config, RunOptions(out=folder))
        self._next = 0

    def seconds(self, *, traced: bool) -> float:
        """The time of a block, without the start and stop of the recording."""
        device = self._trainer.config.device
        if traced:
            session = telemetry.start(
                "cost", attempt=self._next, topology=Topology(), rank=0, spool=self._folder / "spool",
                agent=False, device=device,
            )  # fmt: skip
            assert session.recording
        readout = DeviceReadout() if device == "cuda" else HostReadout()
        _wait_for(device)
        began_s = time.perf_counter()
        for step in range(self._next, self._next + STEPS):
            with telemetry.step(step):
                readout.put(step, self._trainer.step(step, self._loader, self._checkpoints)[:2])
                self._progress.report(readout.ready())
        _wait_for(device)
        block_s = time.perf_counter() - began_s
        self._next += STEPS
        telemetry.stop()
        return block_s


def _wait_for(device: str) -> None:
    """Wait until the device has done all of its work."""
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
