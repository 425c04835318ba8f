"""The rows of an ablation are options of `rankscope train`."""

import pytest
import typer
from click.testing import CliRunner

from telemetry.errors import UsageError
from tests.each_case import each_case
from trainer.recipes import RECIPES, recipe_named
from trainer.techniques import BY_NAME, rows_of
from ui.cli.main import app, load_command


def test_each_ablation_row_adds_one_technique_to_the_previous_row() -> None:
    baseline, window, tensor, pipeline = rows_of(recipe_named("tiny_cpu"), ["window", "overlap-tp", "overlap-pp"])
    assert baseline.options[baseline.options.index("--window") + 1] == "0"
    assert baseline.options[baseline.options.index("--overlap") + 1] == "none"
    assert window.options[window.options.index("--window") + 1] == "64"
    assert tensor.options[tensor.options.index("--overlap") + 1] == "tp"
    assert pipeline.options[pipeline.options.index("--overlap") + 1] == "tp,pp"
    assert "--window 64" in " ".join(pipeline.options)
    assert [row.number for row in (baseline, window, tensor, pipeline)] == [0, 1, 2, 3]


@each_case("recipe", RECIPES)
def test_train_command_accepts_the_options_of_every_ablation_row(recipe: str) -> None:
    command = load_command("train")
    for row in rows_of(recipe_named(recipe), BY_NAME):
        context = command.make_context("train", list(row.options))
        assert isinstance(context, typer.Context | object)
        assert context.params["window"] is not None


def test_ablation_rows_omit_techniques_that_do_not_fit_the_grid() -> None:
    names = [row.title for row in rows_of(recipe_named("one_gpu"))]
    assert "overlap of tp" not in names
    assert "compiled blocks" in names
    for recipe in ("tiny_cpu", "megascale_175b"):  # tensor parallelism
        assert "compiled blocks" not in [row.title for row in rows_of(recipe_named(recipe))]


@each_case("names", [["windows"], [], ["window", "window"]])
def test_invalid_techniques_are_rejected_with_a_hint_that_lists_valid_ones(names: list[str]) -> None:
    with pytest.raises(UsageError, match=r"hint: use some of parallel-block, "):
        rows_of(recipe_named("tiny_cpu"), names)


def test_ablate_command_rejects_an_unknown_technique() -> None:
    result = CliRunner().invoke(typer.main.get_command(app), ["ablate", "--techniques", "windows"])
    assert isinstance(result.exception, UsageError)
    assert "unknown technique 'windows'" in str(result.exception)
