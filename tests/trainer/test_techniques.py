"""Each technique gives the losses of the plain model over twenty steps."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partialmethod
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.trainer.plain_model import LEARNING_RATE, made_batches, plain_losses
from trainer.choices import Recompute
from trainer.compute import ComputeConfig
from trainer.config import ModelConfig
from trainer.model.block import Block
from trainer.model.computing import use_compute
from trainer.model.transformer import TransformerStage, by_heads, initialise

CPU = torch.device("cpu")
CONFIG = ModelConfig(num_layers=2, hidden_size=64, num_heads=4, sequence_length=64, window=24)
BATCHES = made_batches(CONFIG, count=20)
TOLERANCE = 1e-5


def made_stage(config: ModelConfig, compute: ComputeConfig) -> TransformerStage:
    stage = TransformerStage(config, stage=0, num_stages=1)
    initialise(stage, config, seed=0)
    use_compute(stage, config, compute, CPU)
    return stage


def losses_of(config: ModelConfig, compute: ComputeConfig) -> list[float]:
    stage = made_stage(config, compute)
    optimiser = torch.optim.AdamW(stage.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    losses = []
    for tokens, targets in BATCHES:
        with torch.autocast("cpu", torch.bfloat16, enabled=compute.half):
            loss = stage(tokens, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def plain(config: ModelConfig) -> list[float]:
    return _plain(replace(config, fused_projection=False))


@cache
def _plain(separate: ModelConfig) -> list[float]:
    stage = made_stage(separate, ComputeConfig())
    return plain_losses(dict(stage.named_parameters()), separate, BATCHES)


@pytest.mark.parametrize(
    ("model", "compute"),
    [
        pytest.param({}, {}, id="parallel"),
        pytest.param({"block": "serial"}, {}, id="serial"),
        pytest.param({"window": 0}, {}, id="no-window"),
        pytest.param({"fused_projection": True}, {}, id="fused"),
        pytest.param({}, {"recompute": "selective"}, id="selective"),
        pytest.param({"block": "serial"}, {"recompute": "full"}, id="serial-full"),
    ],
)
def test_each_technique_has_the_losses_of_the_plain_model(model: dict[str, Any], compute: dict[str, Any]) -> None:
    config = replace(CONFIG, **model)
    assert losses_of(config, ComputeConfig(**compute)) == pytest.approx(plain(config), rel=TOLERANCE)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # of the compiler
@pytest.mark.filterwarnings("error:.*lru_cache")
@pytest.mark.parametrize("backend", ["aot_eager_decomp_partition", pytest.param("inductor", marks=pytest.mark.long)])
def test_compiled_blocks_have_the_losses_of_the_plain_model(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With recomputation, which is compiled too. The first backend makes the same graphs as the second one, and runs
    them without a C++ compiler, which takes most of the time."""
    monkeypatch.setattr(Block, "compile", partialmethod(Block.compile, backend=backend))
    config = replace(CONFIG, fused_projection=True)
    assert losses_of(config, ComputeConfig(compile=True, recompute="selective")) == pytest.approx(
        plain(config), rel=TOLERANCE
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("bfloat16", 1e-3), ("float8", 5e-3)])
def test_lower_precision_has_losses_near_those_of_the_plain_model_but_not_equal(
    precision: Any, tolerance: float
) -> None:
    losses = losses_of(CONFIG, ComputeConfig(precision=precision))
    assert losses == pytest.approx(plain(CONFIG), rel=tolerance)
    assert losses != pytest.approx(plain(CONFIG), rel=TOLERANCE)


def test_a_shard_of_the_fused_projection_holds_whole_heads() -> None:
    """Half of its rows is the fused projection of half of the heads and half of the units."""
    qkv, up = torch.randn(3 * 64, 64), torch.randn(4 * 64, 64)
    halves = [by_heads(a, b, 2) for a, b in zip(qkv.chunk(2), up.chunk(2), strict=True)]
    torch.testing.assert_close(by_heads(qkv, up, 4), torch.cat(halves))


class _Results(TorchDispatchMode):
    """Records the storage of each result, to count the bytes that are kept after the forward.

    Hooks of saved tensors do not see what selective checkpointing keeps.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._known = {tensor.data_ptr() for tensor in known}
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._seen[storage.data_ptr()] = (StorageWeakRef(storage), storage.nbytes())
        return out

    def kept_bytes(self) -> int:
        alive = {place: size for place, (reference, size) in self._seen.items() if not reference.expired()}
        return sum(size for place, size in alive.items() if place not in self._known)


def kept_bytes(recompute: Recompute, **model: Any) -> int:
    """Bytes that the blocks keep between forward and backward, without parameters and the first input."""
    config = replace(CONFIG, **model)
    stage = made_stage(config, ComputeConfig(recompute=recompute))
    x = torch.randn(4, config.sequence_length, config.hidden_size, requires_grad=True)
    with _Results([x, *stage.parameters()]) as results:
        out = x
        for block in stage.blocks.values():
            out = block(out)
    kept = results.kept_bytes()
    assert out.requires_grad
    return kept


@pytest.mark.parametrize("model", [{}, {"block": "serial"}, {"fused_projection": True}, {"window": 0}])
def test_selective_recomputation_halves_the_kept_bytes(model: dict[str, Any]) -> None:
    none, selective, full = (kept_bytes(recompute, **model) for recompute in get_args(Recompute))
    assert selective <= none / 2
    assert full < selective
