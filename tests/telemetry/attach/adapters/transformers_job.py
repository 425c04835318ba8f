"""A Trainer of transformers on a small Llama, as a user writes it. With `callback`, it uses the adapter of rankscope.
With `axolotl`, it uses the callbacks of Axolotl's plugins.

Prints the bits of each loss. Evaluates after steps 6 and 12, saves after step 8.
"""

import sys
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS = 12
EVALUATED_AFTER, SAVED_AFTER = 6, 8
ACCUMULATED = 2
LENGTH = 32


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Random token sequences."""

    def __len__(self) -> int:
        return STEPS * ACCUMULATED * 4 * 2

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(128, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main(out: str, *options: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=96, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    slow_down(model)
    arguments = TrainingArguments(
        output_dir=out,
        use_cpu=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=ACCUMULATED,
        max_steps=STEPS,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=EVALUATED_AFTER,
        save_strategy="steps",
        save_steps=SAVED_AFTER,
        report_to=[],
        disable_tqdm=True,
        include_num_input_tokens_seen="all",
    )
    callbacks: list[Any] = []
    if "callback" in options:
        from rankscope.adapters import TransformersCallback  # noqa: PLC0415

        callbacks.append(TransformersCallback())
    if "axolotl" in options:
        from axolotl.integrations.base import PluginManager  # noqa: PLC0415

        plugins = PluginManager.get_instance()
        plugins.register("rankscope.adapters.AxolotlPlugin")
        callbacks += plugins.add_callbacks_pre_trainer(cfg={}, model=model)
    data = Tokens()
    few = torch.utils.data.Subset(data, range(16))
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=few, callbacks=callbacks)
    trainer.train()
    for logged in trainer.state.log_history:
        for name in ("loss", "grad_norm", "eval_loss"):
            if name in logged:
                print("loss", name, float(logged[name]).hex(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
