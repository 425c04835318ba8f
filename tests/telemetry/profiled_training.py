"""A rank that trains a few steps under gloo with PyTorch's profiler on, and records them with rankscope."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import telemetry
from telemetry.topology import Topology

NUM_STEPS = 3
FIRST_STEP = 1
"""As the profiler counts."""
FIRST_RECORDED = 40
"""The number with which rankscope records the profiler's step 0."""
RUN = "profiled"


def train(folder: str, rank: str, world_size: str) -> None:
    """Train. The trace is written to ``FOLDER/rankN.json.gz``, the records to ``FOLDER/spool``."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    topology = Topology(dp=int(world_size))
    telemetry.start(RUN, topology=topology, rank=int(rank), attempt=0, spool=Path(folder) / "spool", agent=False)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=int(rank), world_size=int(world_size))
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = schedule(wait=0, warmup=FIRST_STEP, active=NUM_STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for step in range(FIRST_RECORDED, FIRST_RECORDED + FIRST_STEP + NUM_STEPS):
            with telemetry.step(step):
                with record_function("forward"):
                    loss = model(torch.ones(64, 256)).square().mean()
                loss.backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json.gz")
    telemetry.stop()
    dist.destroy_process_group()
