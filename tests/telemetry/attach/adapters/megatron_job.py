"""A loop around the schedules of megatron-core, on two gloo ranks: two replicas, or with `pipeline` two stages.

megatron-core makes its tensors on "cuda". Here they are made on the CPU. Prints the bits of each loss.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS, MICROBATCHES = 12, 4
LENGTH, BATCH, WIDTH = 16, 4, 128


class OnCpu(TorchFunctionMode):
    """Tensors for "cuda" are made on the CPU."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


class PipelineStage(nn.Module):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config, self.model_type = config, ModelType.encoder_or_decoder
        self.layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.received: Tensor | None = None

    def set_input_tensor(self, received: Any) -> None:
        self.received = received[0] if isinstance(received, list) else received

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows if self.received is None else self.received
        return rows + self.layers(rows)  # no view: the schedule frees it


def batches(seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(LENGTH, BATCH, WIDTH, generator=generator)


def forward_step(data: Iterator[Tensor], model: nn.Module) -> tuple[Tensor, Any]:
    output = model(next(data))

    def loss_of(output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss = output.square().mean()
        return loss, {"loss": loss.detach()}

    return output, loss_of


def main(out: str, *options: str) -> None:
    torch.set_num_threads(1)
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    dist.init_process_group("gloo")
    num_stages = 2 if "pipeline" in options else 1
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=num_stages)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=WIDTH,
        num_attention_heads=4,
        pipeline_model_parallel_size=num_stages,
        pipeline_dtype=torch.float32,
        deallocate_pipeline_outputs=True,
    )
    torch.manual_seed(0)
    stage = PipelineStage(config)
    model = stage if num_stages > 1 else DistributedDataParallel(stage)
    slow_down(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batches(0 if num_stages > 1 else int(os.environ["RANK"]))
    run = get_forward_backward_func()
    for _ in range(STEPS):
        with OnCpu():
            losses = run(
                forward_step_func=forward_step,
                data_iterator=data,
                model=model,
                num_microbatches=MICROBATCHES,
                seq_length=LENGTH,
                micro_batch_size=BATCH,
                forward_only=False,
            )
        optimizer.step()
        optimizer.zero_grad()
        for named in losses:
            print("loss", named["loss"].item().hex(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
