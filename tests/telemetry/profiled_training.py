"""A rank that trains a few steps under gloo with PyTorch's profiler on."""

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, schedule

NUM_STEPS = 3
FIRST_STEP = 1


def train(folder: str, rank: str, world_size: str) -> None:
    """Train. The trace is written to ``FOLDER/rankN.json.gz``."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=int(rank), world_size=int(world_size))
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = schedule(wait=0, warmup=FIRST_STEP, active=NUM_STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _ in range(FIRST_STEP + NUM_STEPS):
            with record_function("forward"):
                loss = model(torch.ones(64, 256)).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json.gz")
    dist.destroy_process_group()
