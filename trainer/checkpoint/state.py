"""What a checkpoint contains, by name. Names do not depend on the grid, so any grid can load it.

    model.blocks.3.norm.weight              parameters
    optimizer.blocks.3.norm.weight.exp_avg  moments, sharded like their parameter
    random.cpu.5  random.cuda.5             state of the random generators of rank 5

The data position is the number of the step: batches are chosen by seed and step alone. The learning rate follows from
the step as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.optim.sharded import ShardedOptimiser


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """The state of one rank: its parts of the model and of the optimiser, and its random generators."""

    rank: int
    device: torch.device
    modules: Sequence[nn.Module]
    optimiser: ShardedOptimiser

    def tensors(self) -> dict[str, Tensor]:
        """Name to tensor: the live tensors, or DTensors over them. Writing into them changes the training."""
        parameters = {
            f"model.{name}": parameter.detach()
            for module in self.modules
            for name, parameter in module.named_parameters()
        }
        moments = {f"optimizer.{name}": moment for name, moment in self.optimiser.moments().items()}
        return parameters | moments | self.random()

    def adopt(self, tensors: Mapping[str, Tensor], *, step: int) -> None:
        """Continue after ``step`` steps with what was loaded into ``tensors``. Parameters and moments are loaded in
        place.

        A generator that is not among ``tensors`` stays as it is: the job that saved had no such rank or device.
        """
        self.optimiser.resume_at(step)
        names = {f"random.{kind}.{self.rank}": kind for kind in ("cpu", "cuda")}
        for name in names.keys() & tensors.keys():
            if names[name] == "cpu":
                torch.set_rng_state(tensors[name])
            else:
                torch.cuda.set_rng_state(tensors[name], self.device)

    def random(self) -> dict[str, Tensor]:
        """Copies of the states of the random generators."""
        states = {f"random.cpu.{self.rank}": torch.get_rng_state()}
        if self.device.type == "cuda":
            states[f"random.cuda.{self.rank}"] = torch.cuda.get_rng_state(self.device)
        return states
