"""What tracing costs a training on a GPU: blocks of steps with and without recording, in turn, in one process.

The steps are those of the bundled trainer, with the recipe ``one_gpu``. The model, its memory and the clocks of the GPU
are the same in both blocks of a pair.
"""

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
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
from trainer.parallel.mesh import make_grid
from trainer.progress import DeviceReadout, HostReadout, Progress
from trainer.rank import BACKENDS
from trainer.recipes import one_gpu
from trainer.run_options import RunOptions

PAIRS, WARM_UP = 50, 5
STEPS = 2
"""Steps of a block."""
MAX_RATIO = 1.001


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as name:
        traced, plain, spans = measure(Path(name), small_steps(one_gpu()), torch.cuda.synchronize)
    ratios = [one / other for one, other in zip(traced, plain, strict=True)]
    lower, ratio, upper = quantiles(ratios, n=4)
    figures = {
        "ratio": round(ratio, 5),
        "quartiles": [round(lower, 5), round(upper, 5)],
        "step_ms": round(median(plain) / STEPS * 1e3, 3),
        "spans_per_second": round(spans / sum(traced)),
        "pairs": PAIRS,
    }
    good = ratio <= MAX_RATIO
    say("passed" if good else "failed", figures, "" if good else f"the ratio must not be above {MAX_RATIO}")


def small_steps(config: TrainConfig) -> TrainConfig:
    """Two microbatches in each step, so that there are many blocks."""
    return replace(config, parallel=replace(config.parallel, num_microbatches=2))


def measure(
    folder: Path, config: TrainConfig, synchronize: Callable[[], None], pairs: int = PAIRS
) -> tuple[list[float], list[float], int]:
    """Seconds of each block with recording and without, and the number of spans in the blocks with recording. The first
    pairs are left out. The order in a pair alternates."""
    total = (pairs + WARM_UP) * 2 * STEPS
    config = replace(config, num_steps=total, data=replace(config.data, shared_loader=False))
    device = torch.device(config.device, 0) if config.device == "cuda" else torch.device("cpu")
    backend = register_traced_backend(BACKENDS[config.device])
    dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=0, world_size=1)
    trainer = Trainer(config, make_grid(Topology(), device), Healthy())
    batches = Batches(load_tokens(config.data, vocab_size=config.model.vocab_size), config, dp_index=0)
    found: dict[bool, list[float]] = {True: [], False: []}
    gc.collect()
    gc.freeze()
    gc.disable()
    with Loader(batches.at, steps=range(total), depth=2, device=device) as loader:
        blocks = _Blocks(trainer, loader, Progress(config, folder / "progress.jsonl"), folder, synchronize)
        for number in range(pairs + WARM_UP):
            for traced in (True, False) if number % 2 else (False, True):
                found[traced].append(blocks.seconds(traced=traced))
    gc.enable()
    dist.destroy_process_group()
    spans_of_block = len(spans_of(folder)[0])  # those of the last block
    return found[True][WARM_UP:], found[False][WARM_UP:], spans_of_block * pairs


class _Blocks:
    """Does blocks of consecutive steps."""

    def __init__(
        self, trainer: Trainer, loader: Loader, progress: Progress, folder: Path, synchronize: Callable[[], None]
    ) -> None:
        self._trainer = trainer
        self._loader = loader
        self._progress = progress
        self._folder = folder
        self._synchronize = synchronize
        self._checkpoints = Checkpoints(trainer.config, RunOptions(out=folder))
        self._next = 0

    def seconds(self, *, traced: bool) -> float:
        """The time of a block, without the start and stop of the recording."""
        config = self._trainer.config
        if traced:
            session = telemetry.start(
                "cost", attempt=self._next, topology=Topology(), rank=0, spool=self._folder / "spool",
                agent=False, device=config.device,
            )  # fmt: skip
            assert session.recording
        readout = DeviceReadout() if config.device == "cuda" else HostReadout()
        self._synchronize()
        began = time.perf_counter()
        for step in range(self._next, self._next + STEPS):
            with telemetry.step(step):
                readout.put(step, self._trainer.step(step, self._loader, self._checkpoints)[:2])
                self._progress.report(readout.ready())
        self._synchronize()
        spent = time.perf_counter() - began
        self._next += STEPS
        telemetry.stop()
        return spent


if __name__ == "__main__":
    main()
