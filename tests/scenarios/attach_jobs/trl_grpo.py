"""A GRPOTrainer of TRL on a small Llama whose tokenizer is made here, as a user writes it."""

import os
from typing import Any

import torch
from datasets import Dataset
from injected import OUT, inject, note_loss
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

STEPS = int(os.environ["STEPS"])
WORDS = [f"w{number}" for number in range(60)]
CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=2,
    num_attention_heads=4,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=1,
)


def reward_length(completions: list[Any], **_: Any) -> list[float]:
    """Longer completions are better."""
    return [float(len(text)) for text in completions]


def make_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>")


def main() -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    inject(model, int(os.environ["RANK"]))
    arguments = GRPOConfig(
        output_dir=str(OUT / "checkpoints"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=STEPS,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    prompts = [" ".join(WORDS[first % 40 : first % 40 + 4]) for first in range(4 * STEPS)]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward_length,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=make_tokenizer(),
    )
    trainer.train()
    for logged in trainer.state.log_history:
        for name in ("loss", "grad_norm", "reward"):
            if name in logged:
                note_loss(arguments.process_index, logged[name])


if __name__ == "__main__":
    main()
