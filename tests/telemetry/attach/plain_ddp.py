"""A plain DDP training of two gloo ranks, as a user writes it. It does not know rankscope.

Variables: MEET, the rendezvous address; STEPS; SLOW_RANK, which multiplies matrices in its forward. Prints the bits of
each loss.
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

STEPS = int(os.environ.get("STEPS", "16"))
BATCH = 32


class Net(nn.Module):
    def __init__(self, *, is_slow: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
        self.is_slow = is_slow

    def forward(self, rows: Tensor) -> Tensor:
        if self.is_slow:
            matrix = torch.ones(192, 192)
            for _ in range(20):
                matrix @ matrix
        return self.layers(rows)


def main() -> None:
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["MEET"], rank=rank, world_size=size)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(is_slow=os.environ.get("SLOW_RANK") == str(rank)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rows = torch.randn(STEPS * BATCH, 64, generator=torch.Generator().manual_seed(rank))
    for (batch,) in DataLoader(TensorDataset(rows), batch_size=BATCH):
        loss = (model(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex())
    model.eval()
    with torch.no_grad():
        model(rows[:BATCH])
    if rank == 0:
        torch.save(model.module.state_dict(), os.environ["CHECKPOINT"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
