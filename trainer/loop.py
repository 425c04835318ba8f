"""The training of one rank: builds its parts of the model, and then does the steps.

step   data-load | pipeline: forward- and backward-compute, sends, receives, gather, reduce | clip | optimizer
"""

import gc
from contextlib import closing
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor.parallel import loss_parallel

import telemetry
from telemetry import Stage, span
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.state import TrainingState
from trainer.config import TrainConfig
from trainer.data.batches import Batch, BatchSource, Loader
from trainer.faults.act import Healthy
from trainer.faults.collectives import hook_before_collectives, intercept_collectives
from trainer.model.computing import use_compute
from trainer.model.transformer import TransformerStage, initialise
from trainer.optim.choice import make_optimiser
from trainer.optim.sharded import add_over_ranks
from trainer.parallel.data import DataOverlap
from trainer.parallel.mesh import Grid, shard_parameters
from trainer.parallel.pipeline import make_schedule
from trainer.parallel.tensor import shard_tensors
from trainer.progress import PEAK_MEMORY, DeviceReadout, HostReadout, Progress, peak_memory_mib

STEPS_PER_COLLECTION = 50


class Trainer:
    """A rank's model stages, their schedule and their optimiser."""

    def __init__(self, config: TrainConfig, grid: Grid, hook: Healthy) -> None:
        self.config = config
        self.grid = grid
        self.hook = hook
        self.stages = build_stages(config, grid)
        if type(hook) is not Healthy:
            hook_before_collectives(self.stages, hook)
            intercept_collectives(grid, hook)
        self.optimiser = make_optimiser(self.stages, config.optim)
        self.overlap = DataOverlap(self.stages) if config.overlap.dp and grid.topology.dp > 1 else None
        self.schedule = make_schedule(self.stages, config, grid, hook, self.overlap)

    def run(self, batches: BatchSource, progress: Progress, checkpoints: Checkpoints) -> bool:
        """Do the steps that are left. Returns whether the job was asked to end, and did so before the last step.

        Automatic garbage collection is off. All ranks collect garbage in the same steps.
        """
        steps = range(checkpoints.restore(self.training_state()), self.config.num_steps)
        readout = DeviceReadout() if self.grid.device.type == "cuda" else HostReadout()
        ended = False
        gc.collect()
        gc.freeze()
        gc.disable()
        with (
            Loader(
                self.hook.source(batches.at),
                steps=steps,
                depth=self.config.data.queue_depth,
                device=self.grid.device,
            ) as loader,
            closing(batches),
        ):
            for number in steps:
                with telemetry.step(number):
                    totals = self.step(number, loader, checkpoints)
                    readout.put(number, totals[:2])
                    try:
                        ended = checkpoints.after(number, totals)
                    finally:
                        progress.report(readout.ready())
                if ended:
                    break
            progress.report(readout.ready(wait=True))
        if steps:
            telemetry.sample(PEAK_MEMORY, peak_memory_mib(self.grid.device), step=number)
        return ended and number < steps[-1]

    def training_state(self) -> TrainingState:
        """The state of this rank that a checkpoint contains."""
        return TrainingState(
            rank=self.grid.rank, device=self.grid.device, modules=self.stages, optimiser=self.optimiser
        )

    def step(self, number: int, loader: Loader, checkpoints: Checkpoints) -> Tensor:
        """Do one step. Returns sums over all ranks, on the device: the squared gradient norm, the loss, and the signals
        of ``checkpoints`` if it has any."""
        self.hook.at_step(number)
        if self.overlap is not None:
            self.hook.before(Stage.PARAMS_ALL_GATHER)
            self.overlap.prefetch()
        batch = self._load(loader)
        loss = self._forward_backward(batch)
        totals = self._clip(loss, checkpoints)
        self.hook.before(Stage.OPTIMIZER)
        with span(Stage.OPTIMIZER):
            self.optimiser.step(number)
        if number % STEPS_PER_COLLECTION == STEPS_PER_COLLECTION - 1:
            gc.collect()
        return totals

    def _load(self, loader: Loader) -> Batch:
        self.hook.before(Stage.DATA_LOAD)
        with span(Stage.DATA_LOAD):
            self.hook.begin(Stage.DATA_LOAD)
            return loader.next()

    def _forward_backward(self, batch: Batch) -> Tensor:
        """Compute the gradients of the batch in every parameter. Returns this rank's share of the mean loss."""
        place, topology = self.grid.place, self.grid.topology
        inputs = (batch.inputs,) if place.pp == 0 else ()
        last = place.pp == topology.pp - 1
        losses: list[Tensor] = []
        keywords: dict[str, Any] = {"targets": batch.targets, "target": batch.targets} if last else {}
        with loss_parallel():
            self.schedule.step(*inputs, **keywords, losses=losses if last else None, return_outputs=False)
        if self.overlap is not None:
            self.overlap.finish()
        if last and place.tp == 0:
            return torch.stack([loss.detach() for loss in losses]).mean() / topology.dp
        return torch.zeros((), device=self.grid.device)

    def _clip(self, loss: Tensor, checkpoints: Checkpoints) -> Tensor:
        """Clip the gradients. One sum over all ranks gives the squared norm, the loss and the signals of checkpoints.
        Returns this sum."""
        self.hook.before(Stage.OPTIMIZER_CLIP)
        with span(Stage.OPTIMIZER_CLIP):
            self.hook.gradients(self.optimiser.take_gradients())
            figures = torch.stack((self.optimiser.square_sum(), loss))
            if (signals := checkpoints.signals()) is not None:
                on_host = torch.tensor(signals, pin_memory=self.grid.device.type == "cuda")
                figures = torch.cat((figures, on_host.to(self.grid.device, non_blocking=True)))
            totals = add_over_ranks(figures)
            self.optimiser.clip(totals[0].sqrt())
        return totals


def build_stages(config: TrainConfig, grid: Grid) -> list[TransformerStage]:
    """This rank's parts of the model, one for each chunk. A part is sharded along tp, then initialised, then sharded
    along dp."""
    return [
        _build_stage(config, grid, chunk * grid.topology.pp + grid.place.pp)
        for chunk in range(config.parallel.num_chunks)
    ]


def _build_stage(config: TrainConfig, grid: Grid, index: int) -> TransformerStage:
    with torch.device("meta"):
        stage = TransformerStage(config.model, stage=index, num_stages=config.parallel.num_stages)
    if grid.topology.tp > 1:
        shard_tensors(stage, grid.mesh["tp"], overlap=config.overlap.tp)
    stage.to_empty(device=grid.device)
    initialise(stage, config.model, seed=config.seed)
    use_compute(stage, config.model, config.compute, grid.device)
    if grid.topology.dp > 1:
        shard_parameters(stage, grid.mesh["dp"], half=config.compute.half)
    return stage
