"""A Trainer of Lightning with an evaluation and a checkpoint, as a user writes it."""

import os

import lightning.pytorch as pytorch
import torch
from injected import OUT, inject, note_loss
from lightning.pytorch.callbacks import ModelCheckpoint
from small_model import BATCH, error_of, make_model, rows_of
from torch import Tensor
from torch.utils.data import DataLoader

STEPS, RANKS = int(os.environ["STEPS"]), int(os.environ["WORLD_SIZE"])


class Regression(pytorch.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()
        inject(self.net, int(os.environ["RANK"]))

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        loss = error_of(self.net, batch[0])
        self.log("train_loss", loss)
        note_loss(self.global_rank, loss.item())
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("val_loss", error_of(self.net, batch[0]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    pytorch.seed_everything(0)
    trainer = pytorch.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy="ddp",
        max_steps=STEPS,
        val_check_interval=STEPS // 2,
        log_every_n_steps=1,
        callbacks=[ModelCheckpoint(str(OUT / "checkpoints"), every_n_train_steps=STEPS // 2)],
        default_root_dir=str(OUT),
        enable_progress_bar=False,
    )
    trainer.fit(
        Regression(),
        DataLoader(rows_of(0, STEPS * RANKS), batch_size=BATCH),
        DataLoader(rows_of(1, 2 * RANKS), batch_size=BATCH),
    )


if __name__ == "__main__":
    main()
