"""A Trainer of Lightning on a small network, as a user writes it. It does not know rankscope.

Arguments: the folder, the package (``lightning.pytorch`` or ``pytorch_lightning``), and `start`: the script calls
``rankscope.start``. Prints the bits of each loss.
"""

import pickle
import sys
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS = 12
ACCUMULATED = 2
EVALUATED_AFTER, SAVED_AFTER = 6, 8


def main(out: str, package: str, *options: str) -> None:
    if "start" in options:
        import rankscope  # noqa: PLC0415

        rankscope.start(agent=False)
    pytorch = import_module(package)

    class Regression(pytorch.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
            slow_down(self.net)

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            loss = self._loss(batch[0])
            self.log("train_loss", loss)
            print("loss", float(loss.detach()).hex(), flush=True)
            return loss

        def validation_step(self, batch: list[Tensor], index: int) -> None:
            loss = self._loss(batch[0])
            self.log("val_loss", loss, sync_dist=True)
            print("loss of evaluation", float(loss).hex(), flush=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

        def _loss(self, rows: Tensor) -> Tensor:
            return (self.net(rows) - rows.sum(dim=1, keepdim=True)).square().mean()

    pytorch.seed_everything(0)
    rows = torch.randn(STEPS * ACCUMULATED * 2 * 16, 64)
    trainer = pytorch.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATED,
        val_check_interval=EVALUATED_AFTER * ACCUMULATED,
        num_sanity_val_steps=1,
        log_every_n_steps=1,
        callbacks=[import_module(f"{package}.callbacks").ModelCheckpoint(out, every_n_train_steps=SAVED_AFTER)],
        logger=import_module(f"{package}.loggers").CSVLogger(out),
        enable_progress_bar=False,
    )
    trainer.callbacks = pickle.loads(pickle.dumps(trainer.callbacks))  # as strategies that spawn processes do
    trainer.fit(
        Regression(),
        DataLoader(TensorDataset(rows), batch_size=16),
        DataLoader(TensorDataset(rows[:64]), batch_size=16),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
