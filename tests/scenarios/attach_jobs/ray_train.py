"""A TorchTrainer of Ray Train with gloo workers and a checkpoint, as a user writes it."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = str(Path(__file__).parent)


def train(config: dict[str, Any]) -> None:
    sys.path.insert(0, FOLDER)
    import ray.train  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from injected import inject, note_loss  # noqa: PLC0415
    from ray.train import Checkpoint  # noqa: PLC0415
    from ray.train.torch import prepare_model  # noqa: PLC0415
    from small_model import error_of, loader_of, make_model  # noqa: PLC0415

    rank = ray.train.get_context().get_world_rank()
    model = make_model()
    inject(model, rank)
    parallel = prepare_model(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-3)
    for step, (batch,) in enumerate(loader_of(rank, config["steps"])):
        loss = error_of(parallel, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        note_loss(rank, loss.item())
        if step + 1 == config["steps"] // 2:
            with tempfile.TemporaryDirectory() as folder:
                torch.save(model.state_dict(), Path(folder) / "state.pt")
                ray.train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


def main() -> None:
    import ray  # noqa: PLC0415
    from ray.train import RunConfig, ScalingConfig  # noqa: PLC0415
    from ray.train.torch import TorchTrainer  # noqa: PLC0415

    ray.init(num_cpus=4, include_dashboard=False)
    trainer = TorchTrainer(
        train,
        train_loop_config={"steps": int(os.environ["STEPS"])},
        scaling_config=ScalingConfig(num_workers=int(os.environ["RANKS"])),
        run_config=RunConfig(name="trial", storage_path=str(Path(os.environ["TRIAL_OUT"]) / "results")),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
