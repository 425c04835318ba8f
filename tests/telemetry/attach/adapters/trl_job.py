"""A GRPOTrainer of TRL on a small Llama whose tokenizer is made here. It does not know rankscope.

Prints the bits of each loss.
"""

import sys
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from tests.telemetry.attach.adapters.slowed import slow_down

STEPS = 4
WORDS = [f"w{number}" for number in range(60)]


def reward_length(completions: list[Any], **_: Any) -> list[float]:
    """Longer completions are better."""
    return [float(len(text)) for text in completions]


def main(out: str) -> None:
    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["<pad>", "<eos>", *WORDS])}))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<pad>")
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        pad_token_id=0, eos_token_id=1, bos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    slow_down(model)
    arguments = GRPOConfig(
        output_dir=out,
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
    prompts = Dataset.from_dict({"prompt": [" ".join(WORDS[first : first + 4]) for first in range(40)]})
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward_length, args=arguments, train_dataset=prompts, processing_class=tokenizer
    )
    trainer.train()
    for logged in trainer.state.log_history:
        if "loss" in logged:
            print("loss", float(logged["loss"]).hex(), float(logged["grad_norm"]).hex(), logged["reward"], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
