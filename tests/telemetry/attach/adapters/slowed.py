"""One rank of a job computes more than the others: SLOW_RANK, in the forward of its model."""

import os
from typing import Any

import torch
from torch import nn

PRODUCTS = int(os.environ.get("SLOW_PRODUCTS", "40"))


def slow_down(model: nn.Module) -> None:
    """Multiply matrices in each forward of this rank, if it is the slow one. Results do not change."""
    if os.environ.get("SLOW_RANK") == os.environ.get("RANK"):
        model.register_forward_pre_hook(_multiply)


def _multiply(*_: Any) -> None:
    matrix = torch.ones(192, 192)
    for _ in range(PRODUCTS):
        matrix @ matrix
