"""A Trainer of transformers on a small Llama, with an evaluation and a checkpoint, as a user writes it."""

import os

import torch
from injected import OUT, inject, note_loss
from torch.utils.data import Dataset, Subset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

STEPS, RANKS = int(os.environ["STEPS"]), int(os.environ["WORLD_SIZE"])
ACCUMULATED, BATCH, LENGTH = 2, 4, 128
CONFIG = LlamaConfig(
    vocab_size=128, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4
)  # fmt: skip


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random token sequences."""

    def __len__(self) -> int:
        return STEPS * ACCUMULATED * BATCH * RANKS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(CONFIG.vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    inject(model, int(os.environ["RANK"]))
    arguments = TrainingArguments(
        output_dir=str(OUT / "checkpoints"),
        use_cpu=True,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        max_steps=STEPS,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=STEPS // 2,
        save_strategy="steps",
        save_steps=STEPS // 2,
        report_to=[],
        disable_tqdm=True,
    )
    tokens = Tokens()
    trainer = Trainer(model=model, args=arguments, train_dataset=tokens, eval_dataset=Subset(tokens, range(16)))
    trainer.train()
    for logged in trainer.state.log_history:
        for name in ("loss", "grad_norm", "eval_loss"):
            if name in logged:
                note_loss(arguments.process_index, logged[name])


if __name__ == "__main__":
    main()
