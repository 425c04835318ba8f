"""A fault-tolerant DDP training with torchft, one rank in each replica group, as a user writes it.

Started once for each replica group, beside a lighthouse.
"""

import os

import torch
from injected import inject, note_loss
from small_model import error_of, loader_of, make_model
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

STEPS = int(os.environ["STEPS"])


def main() -> None:
    replica = int(os.environ["REPLICA_GROUP_ID"])
    model = make_model()
    inject(model, replica)
    manager = Manager(
        pg=ProcessGroupGloo(),
        min_replica_size=int(os.environ["NUM_REPLICA_GROUPS"]),
        load_state_dict=model.load_state_dict,
        state_dict=model.state_dict,
        replica_id=f"train_ddp_{replica}",
        init_sync=False,
    )
    parallel = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, torch.optim.AdamW(parallel.parameters(), lr=1e-3))
    for (batch,) in loader_of(replica, STEPS):
        optimizer.zero_grad()
        loss = error_of(parallel, batch)
        loss.backward()
        optimizer.step()
        note_loss(replica, loss.item())
    manager.shutdown()


if __name__ == "__main__":
    main()
