"""Two worker groups of verl with two gloo workers each, without a model: each group trains. Arguments: steps."""

import os
import sys

import ray
import torch
import torch.distributed as dist
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup


class Trained(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def train(self, steps: int) -> list[str]:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(steps):
            loss = model(torch.ones(4, 8)).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item().hex())
        dist.destroy_process_group()
        return losses


class ActorWorker(Trained):
    pass


class CriticWorker(Trained):
    pass


def main() -> None:
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    groups = []
    for worker, prefix in ((ActorWorker, None), (CriticWorker, "standalone_critic_")):
        pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
        wrapped = RayClassWithInitArgs(ray.remote(worker))
        groups.append(RayWorkerGroup(pool, wrapped, name_prefix=prefix, device_name="cpu", use_gpu=False))
    for group in groups:
        print("losses", group.train(int(sys.argv[1])))
    ray.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
