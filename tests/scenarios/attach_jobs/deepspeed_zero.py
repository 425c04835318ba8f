"""A DeepSpeed training with ZeRO stage 1 and accumulated gradients, as a user writes it."""

import os

import deepspeed
import torch
from injected import inject, note_loss
from small_model import BATCH, error_of, loader_of, make_model

STEPS, ACCUMULATED = int(os.environ["STEPS"]), 2
CONFIG = {
    "train_micro_batch_size_per_gpu": BATCH,
    "gradient_accumulation_steps": ACCUMULATED,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 1.0,
    "steps_per_print": 1000,
}
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first


def main() -> None:
    rank = int(os.environ["RANK"])
    model = make_model()
    inject(model, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    for (batch,) in loader_of(rank, STEPS * ACCUMULATED):
        loss = error_of(engine, batch)
        engine.backward(loss)
        engine.step()
        note_loss(rank, loss.item())


if __name__ == "__main__":
    main()
