import torch

from trainer.config import ModelConfig
from trainer.model.transformer import TransformerStage, initialise
from trainer.recipes import megascale_175b

CONFIG = ModelConfig(num_layers=4, hidden_size=32, num_heads=2, sequence_length=16)


def cut_into(num_stages: int, seed: int = 0) -> list[TransformerStage]:
    stages = [TransformerStage(CONFIG, stage=stage, num_stages=num_stages) for stage in range(num_stages)]
    for stage in stages:
        initialise(stage, CONFIG, seed=seed)
    return stages


def parameters(stages: list[TransformerStage]) -> dict[str, torch.Tensor]:
    return {name: value for stage in stages for name, value in stage.named_parameters()}


def test_initial_parameters_do_not_depend_on_the_number_of_stages() -> None:
    whole, cut = parameters(cut_into(1)), parameters(cut_into(4))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_different_seeds_give_different_initial_parameters() -> None:
    name = "blocks.2.branches.feed_forward.up.weight"
    assert not torch.equal(parameters(cut_into(1))[name], parameters(cut_into(1, seed=1))[name])


def test_layers_have_different_initial_parameters() -> None:
    values = parameters(cut_into(1))
    blocks = [values[f"blocks.{layer}.branches.feed_forward.up.weight"] for layer in range(4)]
    assert not any(torch.equal(blocks[0], block) for block in blocks[1:])


def test_pipeline_stages_in_sequence_compute_the_output_of_the_whole_model() -> None:
    tokens = torch.randint(256, (2, 16))
    x = tokens
    for stage in cut_into(4):
        x = stage(x, tokens)
    torch.testing.assert_close(x, cut_into(1)[0](tokens, tokens))


def test_loss_of_an_untrained_model_is_near_chance() -> None:
    tokens = torch.randint(256, (4, 16))
    loss = cut_into(1)[0](tokens, torch.randint(256, (4, 16)))
    assert 5.0 < loss.item() < 7.0


def test_megascale_175b_recipe_has_175_billion_parameters() -> None:
    with torch.device("meta"):
        whole = TransformerStage(megascale_175b().model, stage=0, num_stages=1)
    assert 174e9 < sum(parameter.numel() for parameter in whole.parameters()) < 176e9
