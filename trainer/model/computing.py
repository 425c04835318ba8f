"""Sets how the blocks of a stage compute: precision of matrix products, recomputation, compilation."""

import shutil

import torch

from telemetry.errors import UsageError
from trainer.compute import ComputeConfig
from trainer.config import ModelConfig
from trainer.model.attention import window_mask
from trainer.model.block import Block
from trainer.model.float8 import check_float8, use_float8
from trainer.model.transformer import TransformerStage


def use_compute(stage: TransformerStage, model: ModelConfig, config: ComputeConfig, device: torch.device) -> None:
    """Apply ``config`` to every block of a stage of ``model``.

    Call it after the tensors were cut along ``tp`` and before ``fully_shard``.

    Raises:
        UsageError: the device or the machine does not support ``config``.
    """
    check_compute(config, device)
    if config.compile and model.window and device.type == "cuda":
        window_mask(model.sequence_length, model.window, device)  # compiled blocks need the mask to exist
    for block in stage.blocks.values():
        assert isinstance(block, Block)
        if config.precision == "float8":
            use_float8(block)
        block.recompute = config.recompute
        if config.compile:
            block.compile()


def check_compute(config: ComputeConfig, device: torch.device) -> None:
    """Return if the device and the machine support ``config``.

    Raises:
        UsageError: they do not.
    """
    if config.precision == "float8":
        check_float8(device)
    if config.compile and device.type == "cpu" and shutil.which("g++") is None:
        raise UsageError("compilation for the CPU needs a C++ compiler", hint="install g++, or omit --compile")
