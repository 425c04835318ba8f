"""Two replica groups of one rank that torchft keeps in sync, as in its train_ddp.py. It does not use rankscope.

SLOW_RANK: the group that multiplies matrices in its forward. The lighthouse runs in the process
that starts both groups.
"""

import os
import subprocess
import sys
from datetime import timedelta

STEPS = 16


def lead() -> None:
    """Start the lighthouse and both groups, and wait for them."""
    from torchft.coordination import LighthouseServer  # noqa: PLC0415

    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=10_000)
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": lighthouse.address(), "NUM_REPLICA_GROUPS": "2"}
    group = [sys.executable, __file__, "group"]
    groups = [subprocess.Popen(group, env={**environment, "REPLICA_GROUP_ID": str(number)}) for number in range(2)]
    statuses = [process.wait() for process in groups]
    lighthouse.shutdown()
    sys.exit(max(map(abs, statuses)))


def train() -> None:
    import torch  # noqa: PLC0415
    from torch import distributed, nn  # noqa: PLC0415
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo  # noqa: PLC0415

    group = os.environ["REPLICA_GROUP_ID"]
    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 1))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if os.environ.get("SLOW_RANK") == group:
                matrix = torch.ones(192, 192)
                for _ in range(20):
                    matrix @ matrix
            return self.layers(rows)

    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    net = Net()
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=30)),
        load_state_dict=net.load_state_dict,
        state_dict=net.state_dict,
        min_replica_size=2,
        replica_id=f"train_{group}",
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    model = DistributedDataParallel(manager, net)
    optimizer = Optimizer(manager, torch.optim.AdamW(net.parameters(), lr=1e-3))
    rows = torch.randn(32, 64, generator=torch.Generator().manual_seed(int(group)))
    while manager.current_step() < STEPS:
        optimizer.zero_grad()
        loss = (model(rows) - rows.sum(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        line = f"group {group} step {manager.current_step()} loss {loss.item().hex()}\n"
        os.write(1, line.encode())  # at once: both groups print into one pipe
    manager.shutdown()


if __name__ == "__main__":
    train() if sys.argv[1:] == ["group"] else lead()
