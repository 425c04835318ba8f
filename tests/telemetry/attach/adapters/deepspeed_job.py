"""A DeepSpeed training of two gloo ranks, as a user writes it. It does not know rankscope.

Arguments: folder of its checkpoints, folder of a checkpoint from which it continues. Needs DS_ACCELERATOR=cpu. Prints
the bits of each loss. Evaluates after half of its steps, and saves at the end.
"""

import os
import sys

import deepspeed
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS, ACCUMULATED, BATCH = 16, 2, 32
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first


def main(out: str, load: str = "") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    slow_down(model)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": ACCUMULATED,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 1.0,
        "csv_monitor": {"enabled": True, "output_path": out, "job_name": "log"},
        "steps_per_print": 1000,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if load:
        engine.load_checkpoint(load)
    rows = torch.randn(STEPS * ACCUMULATED * BATCH, 64, generator=torch.Generator().manual_seed(rank))
    for number, (batch,) in enumerate(DataLoader(TensorDataset(rows), batch_size=BATCH)):
        loss = (engine(batch) - batch.sum(dim=1, keepdim=True)).square().mean()
        engine.backward(loss)
        engine.step()
        print("loss", loss.item().hex(), flush=True)
        if number + 1 == STEPS * ACCUMULATED // 2:
            engine.eval()
            with torch.no_grad():
                engine(batch)
            engine.train()
    engine.save_checkpoint(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
