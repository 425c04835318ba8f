from dataclasses import replace

import pytest

from trainer.progress import flop_per_token, model_flops_utilisation
from trainer.recipes import megascale_175b, tiny_cpu


def test_flop_per_token_reproduces_the_published_utilisation() -> None:
    """MegaScale, table 2: Megatron-LM, full attention, 256 A100 GPUs, 39.3 ktokens/s, 53.0 %."""
    config = megascale_175b()
    config = replace(config, model=replace(config.model, window=0))
    assert flop_per_token(config.model) == pytest.approx(1.077e12, rel=1e-3)
    assert model_flops_utilisation(39_300, config, peak=312.0) == pytest.approx(0.530, abs=5e-4)


def test_flop_per_token_counts_only_the_keys_inside_the_window() -> None:
    model = replace(tiny_cpu().model, window=64, sequence_length=256)
    full = replace(model, window=0)
    keys_saved = 256 - 64
    assert flop_per_token(full) - flop_per_token(model) == pytest.approx(
        12 * model.num_layers * model.hidden_size * keys_saved
    )
    assert flop_per_token(model, with_skipped=True) == flop_per_token(full)


def test_utilisation_is_none_when_the_peak_is_unknown() -> None:
    assert model_flops_utilisation(1000.0, tiny_cpu(), peak=None) is None
