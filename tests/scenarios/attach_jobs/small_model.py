"""The model and the data of the scripts without a model of their own."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

INPUTS, WIDTH, BATCH = 64, 1024, 512


def make_model() -> nn.Module:
    """The same weights on every rank."""
    torch.manual_seed(0)
    layers = (nn.Linear(INPUTS, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1))
    return nn.Sequential(*layers)


def rows_of(rank: int, num_batches: int) -> TensorDataset:
    """Each rank has different rows."""
    return TensorDataset(torch.randn(num_batches * BATCH, INPUTS, generator=torch.Generator().manual_seed(rank)))


def loader_of(rank: int, num_batches: int) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of :func:`rows_of`."""
    return DataLoader(rows_of(rank, num_batches), batch_size=BATCH)


def error_of(model: nn.Module, batch: Tensor) -> Tensor:
    """The loss."""
    return (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
