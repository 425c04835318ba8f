"""A plain PyTorch DDP loop, recorded with rankscope. The added lines end in ``# +``.

    torchrun --nproc-per-node 2 examples/instrument_your_loop.py
    rankscope diagnose --spool DIR          (DIR is RANKSCOPE_SPOOL, or the folder that rankscope doctor names)

If RANKSCOPE_COLLECTOR is set (the URL of `rankscope collect`), the first rank of each host starts an agent that sends
the records. Without it, records stay in the spool. RANKSCOPE_RUN is the name of the run. Its default is the id of
torchrun: a UUID, unless torchrun has --rdzv-id.

Spans nest on one thread of this process. From other threads and asyncio tasks use ``rankscope.record_span``. A forked
process, such as a DataLoader worker, does not record: put a span around the wait for its batch. Spans that are dropped
are counted, and reported on stderr and by ``rankscope diagnose``.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import rankscope  # +
from telemetry.record.collectives.process_group import register_traced_backend  # +

STEPS = int(os.environ.get("STEPS", "20"))


def main() -> None:
    rankscope.start(meta={"model": "two layers"})  # +
    dist.init_process_group(register_traced_backend("gloo"))  # +  instead of "gloo"
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)))
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = torch.Generator().manual_seed(dist.get_rank())

    for number in range(STEPS):
        with rankscope.step(number):  # +
            with rankscope.span("data-load"):  # +
                inputs = torch.randn(32, 64, generator=data)
                targets = inputs.sum(dim=1, keepdim=True)
            with rankscope.span("forward-compute"):  # +
                loss = nn.functional.mse_loss(model(inputs), targets)
            with rankscope.span("backward-compute"):  # +
                loss.backward()
            with rankscope.span("optimizer"):  # +
                optimiser.step()
                optimiser.zero_grad()
            rankscope.sample("loss", loss.item())  # +

    if dist.get_rank() == 0:
        print(f"loss {loss.item():.4f} after {STEPS} steps")
    dist.destroy_process_group()
    rankscope.stop()  # +


if __name__ == "__main__":
    main()
