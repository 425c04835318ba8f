"""Techniques of the trainer whose form on a GPU differs from that on the CPU."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.compute import ComputeConfig
from trainer.config import ModelConfig
from trainer.model.attention import windowed_attention
from trainer.model.computing import use_compute
from trainer.model.float8 import Float8Linear
from trainer.model.transformer import TransformerStage, initialise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
MODEL = ModelConfig(num_layers=2, hidden_size=256, num_heads=4, sequence_length=512, window=128)
CUDA = torch.device("cuda", 0)


def test_window_attention_and_its_gradients_match_masked_full_attention() -> None:
    inputs = torch.randn(3, 2, 4, 1024, 64, device=CUDA, requires_grad=True)
    distance = torch.arange(1024, device=CUDA)[:, None] - torch.arange(1024, device=CUDA)
    band = (distance >= 0) & (distance < 200)
    outputs = windowed_attention(*inputs, window=200), F.scaled_dot_product_attention(*inputs, attn_mask=band)
    direction = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad(output, inputs, direction)[0] for output in outputs]
    torch.testing.assert_close(*outputs, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("window", [0, MODEL.window])
def test_recomputation_and_compilation_do_not_change_the_loss(window: int) -> None:
    model = replace(MODEL, window=window)
    plain = trained_loss(model, ComputeConfig(precision="bfloat16"))
    for compute in (
        ComputeConfig(precision="bfloat16", recompute="selective"),
        ComputeConfig(precision="bfloat16", recompute="full"),
        ComputeConfig(precision="bfloat16", recompute="selective", compile=True),
    ):
        assert trained_loss(model, compute) == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("window", [0, MODEL.window])
def test_selective_recomputation_halves_the_memory_that_blocks_keep(window: int) -> None:
    model = replace(MODEL, window=window)
    none, selective = (
        kept_bytes(model, ComputeConfig(precision="bfloat16", recompute=r)) for r in ("none", "selective")
    )
    assert selective <= none / 2


def test_float8_products_are_close_to_float32_products() -> None:
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("no float8 matrix products")
    linear = Float8Linear(256, 512, bias=False, device=CUDA)
    x = torch.randn(4, 32, 256, device=CUDA, requires_grad=True)
    direction = torch.randn(4, 32, 512, device=CUDA)
    rounded = [linear(x), *torch.autograd.grad(linear(x), (x, linear.weight), direction.bfloat16())]
    exact = [
        F.linear(x, linear.weight),
        *torch.autograd.grad(F.linear(x, linear.weight), (x, linear.weight), direction),
    ]
    for a, b in zip(rounded, exact, strict=True):
        assert (a.float() - b).norm() < 0.1 * b.norm()


def made_stage(model: ModelConfig, compute: ComputeConfig) -> TransformerStage:
    stage = TransformerStage(model, stage=0, num_stages=1).to(CUDA)
    initialise(stage, model, seed=0)
    use_compute(stage, model, compute, CUDA)
    return stage


def trained_loss(model: ModelConfig, compute: ComputeConfig) -> float:
    """The loss after some steps."""
    stage = made_stage(model, compute)
    optimiser = torch.optim.AdamW(stage.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(64, (4, model.sequence_length), generator=torch.Generator().manual_seed(0)).to(CUDA)
    for _ in range(5):
        with torch.autocast("cuda", torch.bfloat16):
            loss = stage(tokens, tokens.roll(-1, 1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float(loss)


def kept_bytes(model: ModelConfig, compute: ComputeConfig) -> int:
    """Memory between forward and backward of the blocks, beyond the parameters."""
    stage = made_stage(model, compute)
    x: Tensor = torch.randn(16, model.sequence_length, model.hidden_size, device=CUDA, requires_grad=True)
    for _ in range(2):  # the first time, caches are filled
        before = torch.cuda.memory_allocated()
        out = x
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            for block in stage.blocks.values():
                out = block(out)
        kept = torch.cuda.memory_allocated() - before
        out.sum().backward()
        stage.zero_grad(set_to_none=False)
        x.grad = None
        del out
    return kept
