"""The table of `rankscope ablate` on one GPU: one technique more in each row. All spans are recorded.

    python -m tests.gpu.ablation [--out DIR] [--rounds 2]

All trainings run in this process, so that each takes seconds. A machine with a GPU may have no store: figures come from
the files of progress. With ``--out``, ``DIR/spool`` keeps the rank files, for ``rankscope diagnose --spool DIR/spool``.
"""

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tests.gpu.outcome import say
from trainer.data.tokens import load_tokens
from trainer.output import PROGRESS
from trainer.progress import peak_memory_mib, peak_tflops
from trainer.rank import Seat, train_rank
from trainer.recipes import recipe_named
from trainer.run_options import RunOptions
from trainer.techniques import Row, rows_of
from ui.cli.train import config_of, options_from

RECIPE, STEPS, NOT_MEASURED, ROUNDS = "wide_gpu", 6, 2, 2
MEDIANS = ("step_seconds", "tokens_per_second", "mfu", "mfu_with_skipped")
"""Figures of a step (``trainer/progress.py``) of which the table has medians."""
TECHNIQUES = ("parallel-block", "fused-projection", "window", "compile")
"""Those that change something on one GPU. LAMB is left out, because its steps take four times as long."""
LEAST_MFU = 0.552
"""Of the best row. MegaScale reports this share for 12,288 GPUs (arXiv 2402.15627, table 2)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    recipe = recipe_named(RECIPE)
    if peak_tflops(recipe) is None:
        say("not-run", {}, f"the peak of {torch.cuda.get_device_name()} is not known, so there is no MFU")
        return
    options = ("--recipe", RECIPE, "--steps", str(STEPS))
    with nullcontext(given.out) if given.out else tempfile.TemporaryDirectory(prefix="rankscope-gpu-") as folder:
        table = trained_rows(Path(folder), rows_of(recipe, TECHNIQUES), options, given.rounds)
    best = max(row["mfu"] for row in table)
    reason = "" if best >= LEAST_MFU else f"the best MFU is {best:.1%}, the aim is {LEAST_MFU:.1%}"
    figures = {"recipe": RECIPE, "steps": STEPS - NOT_MEASURED, "rounds": given.rounds, "rows": table}
    say("failed" if reason else "passed", figures, reason)


def trained_rows(folder: Path, rows: Sequence[Row], options: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Train each row once in each round. Another row is first in each round.

    ``options`` of `rankscope train` apply to all rows. MFU needs a GPU with a known peak, or ``--peak-tflops``.
    """
    found: dict[int, list[dict[str, float]]] = {row.number: [] for row in rows}
    for number in range(rounds):
        for row in (*rows[number % len(rows) :], *rows[: number % len(rows)]):
            found[row.number].append(_trained(folder / f"row-{row.number}-{number}", row, options))
            print(row.title, number, found[row.number][-1], file=sys.stderr, flush=True)
    first = median(run["tokens_per_second"] for run in found[rows[0].number])
    return [_summary(row, found[row.number], first) for row in rows]


def _trained(out: Path, row: Row, options: Sequence[str]) -> dict[str, float]:
    """Medians over the steps of one training, its peak memory and its last loss."""
    out.mkdir(parents=True)
    config = config_of(options_from([*options, *row.options]))
    run = RunOptions(out=out, run_id=out.name, attempt=0, spool=out.parent / "spool")
    seat = Seat(rank=0, local_rank=0, world_size=1, init_method=f"file://{out}/meet")
    _forget()
    train_rank(seat, config, run, load_tokens(config.data, vocab_size=config.model.vocab_size))
    steps = [json.loads(line) for line in (out / PROGRESS).read_text().splitlines()]
    measured = [{"mfu_with_skipped": step["mfu"], **step} for step in steps[NOT_MEASURED:]]
    medians = {name: median(step[name] for step in measured) for name in MEDIANS}
    return medians | {"peak_memory_mib": peak_memory_mib(torch.device(config.device)), "loss": steps[-1]["loss"]}


def _forget() -> None:
    """Free the model and the compiled code of the previous training. The trainer has turned off automatic collections,
    and excludes objects from them."""
    gc.unfreeze()
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _summary(row: Row, runs: Sequence[Mapping[str, float]], first: float) -> dict[str, Any]:
    """Medians over the runs of a row. ``spread``: half the distance between the fastest and the slowest run, divided by
    the median."""
    steps = [run["step_seconds"] for run in runs]
    middle = {name: median(run[name] for run in runs) for name in runs[0]}
    return {
        "row": row.number,
        "technique": row.title,
        "step_ms": round(middle["step_seconds"] * 1e3, 1),
        "spread": round((max(steps) - min(steps)) / 2 / middle["step_seconds"], 4),
        "tokens_per_second": round(middle["tokens_per_second"]),
        "speed": round(middle["tokens_per_second"] / first, 3),
        "mfu": round(middle["mfu"], 4),
        "mfu_with_skipped": round(middle["mfu_with_skipped"], 4),
        "peak_memory_mib": round(middle["peak_memory_mib"]),
        "loss": round(middle["loss"], 4),
    }


if __name__ == "__main__":
    main()
