"""One rank of a plain DDP training that trains on demand. It does not use rankscope.

stdin     a number of steps, again and again      stdout     wall and processor seconds of a step in that block
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WIDTH, LENGTH, BATCH, LAYERS = 64, 24, 4, 3
ROWS = 4096


def main() -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=os.environ["MEET"], rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
    model = DistributedDataParallel(nn.TransformerEncoder(layer, LAYERS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randn(ROWS, LENGTH, WIDTH)), batch_size=BATCH)
    batches = (batch for _ in range(10**6) for (batch,) in loader)
    for line in sys.stdin:
        count = int(line)
        dist.barrier()
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(count):
            loss = model(next(batches)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        spent = time.perf_counter() - wall, time.process_time() - processor
        print(*(seconds / count for seconds in spent), flush=True)


if __name__ == "__main__":
    main()
