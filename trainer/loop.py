"""One rank's training: build its pieces, then step.

step   data-load | pipeline: forward- and backward-compute, sends, receives, gather, reduce | clip | optimizer
"""

import gc
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor.parallel import loss_parallel

import telemetry
from telemetry import Stage, span
from trainer.config import TrainConfig
from trainer.data.batches import Batch, Batches, Loader
from trainer.data.tokens import Tokens
from trainer.faults.act import Healthy
from trainer.faults.collectives import stand_before_collectives, stand_in_groups
from trainer.model.transformer import TransformerStage, initialise
from trainer.optim.adamw import ShardedAdamW, add_over_ranks
from trainer.parallel.mesh import Grid, shard_parameters
from trainer.parallel.pipeline import make_schedule
from trainer.parallel.tensor import shard_tensors
from trainer.progress import DeviceReadout, HostReadout, Progress

STEPS_PER_COLLECTION = 50


class Trainer:
    """A rank's model stages, their schedule and their optimiser."""

    def __init__(self, config: TrainConfig, grid: Grid, hook: Healthy) -> None:
        self.config = config
        self.grid = grid
        self.hook = hook
        self.stages = build_stages(config, grid)
        if type(hook) is not Healthy:
            stand_before_collectives(self.stages, hook)
            stand_in_groups(grid, hook)
        self.optimiser = ShardedAdamW(self.stages, config.optim)
        self.schedule = make_schedule(self.stages, config, grid, hook)

    def run(self, tokens: Tokens, progress: Progress) -> None:
        """All steps. Automatic garbage collection is off; every rank collects in the same steps."""
        batches = Batches(tokens, self.config, dp_index=self.grid.place.dp)
        readout = DeviceReadout() if self.grid.device.type == "cuda" else HostReadout()
        gc.collect()
        gc.freeze()
        gc.disable()
        with Loader(
            self.hook.source(batches.at),
            num_steps=self.config.num_steps,
            depth=self.config.data.queue_depth,
            device=self.grid.device,
        ) as loader:
            for number in range(self.config.num_steps):
                with telemetry.step(number):
                    readout.put(number, self.step(number, loader))
                    progress.report(readout.ready())
            progress.report(readout.ready(wait=True))

    def step(self, number: int, loader: Loader) -> Tensor:
        """One step; the squared gradient norm and the loss of the whole job, still on the device."""
        self.hook.at_step(number)
        batch = self._load(loader)
        loss = self._forward_backward(batch)
        totals = self._clip(loss)
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
        """Gradients of the batch in every parameter; this rank's share of the mean loss."""
        place, topology = self.grid.place, self.grid.topology
        inputs = (batch.inputs,) if place.pp == 0 else ()
        last = place.pp == topology.pp - 1
        losses: list[Tensor] = []
        keywords: dict[str, Any] = {"targets": batch.targets, "target": batch.targets} if last else {}
        with loss_parallel():
            self.schedule.step(*inputs, **keywords, losses=losses if last else None, return_outputs=False)
        if last and place.tp == 0:
            return torch.stack([loss.detach() for loss in losses]).mean() / topology.dp
        return torch.zeros((), device=self.grid.device)

    def _clip(self, loss: Tensor) -> Tensor:
        """One sum over all ranks brings both the norm to clip to and the loss to report."""
        self.hook.before(Stage.OPTIMIZER_CLIP)
        with span(Stage.OPTIMIZER_CLIP):
            totals = add_over_ranks(torch.stack((self.optimiser.square_sum(), loss)))
            self.optimiser.clip(totals[0].sqrt())
        return totals


def build_stages(config: TrainConfig, grid: Grid) -> list[TransformerStage]:
    """This rank's pieces of the model, one a chunk: shaped, cut along tp, filled, then cut along dp."""
    return [
        _build_stage(config, grid, chunk * grid.topology.pp + grid.place.pp)
        for chunk in range(config.parallel.num_chunks)
    ]


def _build_stage(config: TrainConfig, grid: Grid, index: int) -> TransformerStage:
    with torch.device("meta"):
        stage = TransformerStage(config.model, stage=index, num_stages=config.parallel.num_stages)
    if grid.topology.tp > 1:
        shard_tensors(stage, grid.mesh["tp"])
    stage.to_empty(device=grid.device)
    initialise(stage, config.model, seed=config.seed)
    if grid.topology.dp > 1:
        shard_parameters(stage, grid.mesh["dp"], config.precision)
    return stage
