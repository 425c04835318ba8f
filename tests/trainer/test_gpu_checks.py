"""GPU checks that train (``tests/gpu``), with small trainings on the CPU."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import tracing_cost
from tests.gpu.ablation import trained_rows
from tests.gpu.checkpoints import EVERY, STEPS, differences_of, what_is_wrong
from tests.trainer.jobs import small_config
from tests.trainer.launchers import start_forked
from trainer.recipes import recipe_named
from trainer.techniques import rows_of

PAIRS, MICROBATCHES = 2, 2
LIMIT_S = 120
ANSWER = "answer.json"


def answer_of(work: str, folder: Path) -> Any:
    """Call the function ``work`` of this module in a separate process, and return the JSON that it wrote."""
    log = folder / "log"
    assert start_forked(f"{__name__}:{work}", str(folder), log=log).wait(LIMIT_S) == 0, log.read_text()
    return json.loads((folder / ANSWER).read_text())


def write_cost(folder: str) -> None:
    torch.set_num_threads(1)  # as ranks on the CPU do
    config = small_config(global_microbatches=MICROBATCHES)
    cost = tracing_cost.measure(Path(folder), config, pairs=PAIRS)
    (Path(folder) / ANSWER).write_text(json.dumps(asdict(cost)))


@pytest.mark.gloo
def test_tracing_cost_has_a_time_of_each_pair_and_counts_the_spans_of_a_block(tmp_path: Path) -> None:
    cost = answer_of("write_cost", tmp_path)
    assert len(cost["traced_s"]) == len(cost["plain_s"]) == PAIRS
    assert min(cost["traced_s"] + cost["plain_s"]) > 0
    around = len(("step", "data-load", "optimizer-clip", "optimizer"))
    assert cost["spans_per_block"] == tracing_cost.STEPS * (around + 2 * MICROBATCHES)


def write_rows(folder: str) -> None:
    rows = rows_of(recipe_named("tiny_cpu"), ["window"])
    options = ("--recipe", "tiny_cpu", "--dp", "1", "--pp", "1", "--tp", "1", "--microbatches", "1", "--steps", "3")
    data = ("--data", __file__, "--peak-tflops", "1")
    table = trained_rows(Path(folder), rows, (*options, *data), rounds=1)
    (Path(folder) / ANSWER).write_text(json.dumps(table))


@pytest.mark.gloo
def test_ablation_of_one_rank_has_mfu_with_and_without_the_work_that_a_window_skips(tmp_path: Path) -> None:
    baseline, window = answer_of("write_rows", tmp_path)
    assert (baseline["technique"], window["technique"]) == ("baseline", "sliding window")
    assert baseline["speed"] == 1
    assert baseline["mfu"] == baseline["mfu_with_skipped"] > 0
    assert window["mfu"] < window["mfu_with_skipped"]
    assert min(row["peak_memory_mib"] for row in (baseline, window)) > 0


def losses(first: int, first_loss: float) -> list[dict[str, float]]:
    """Figures of the steps from ``first`` on. All losses after the first one are 2."""
    return [{"step": step, "loss": first_loss if step == first else 2.0} for step in range(first, STEPS)]


def test_a_resumed_training_must_do_the_steps_after_the_checkpoint_with_the_same_first_loss() -> None:
    original = losses(0, 2.0)
    assert what_is_wrong(differences_of(original, losses(EVERY, 2.0))) == ""
    assert "losses" in what_is_wrong(differences_of(original, losses(EVERY, 2.000001)))
    assert "steps" in what_is_wrong(differences_of(original, original))
    assert "steps" in what_is_wrong(differences_of(original, []))


def test_later_losses_of_a_resumed_training_may_differ_by_one_percent() -> None:
    later = [{**step, "loss": 2.01} if step["step"] > EVERY else step for step in losses(EVERY, 2.0)]
    assert what_is_wrong(differences_of(losses(0, 2.0), later)) == ""
    later[-1]["loss"] = 2.03
    assert what_is_wrong(differences_of(losses(0, 2.0), later))
