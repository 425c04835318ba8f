"""LAMB with four times the batch against AdamW, at the same number of tokens: loss curves over three seeds.

python -m tests.benchmarks.lamb_batch [--json] [--curves FILE] [--tokens N] [--seeds 0,1,2]

Both train the same tiny model on the same text in one process. Losses are of text that the training does not see.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tests.benchmarks.figures import Figure, report
from trainer.config import DataConfig, ModelConfig, OptimConfig, ParallelConfig, TrainConfig
from trainer.data.batches import Batches
from trainer.data.tokens import load_tokens
from trainer.model.transformer import TransformerStage, initialise
from trainer.optim.choice import make_optimiser

SEEDS = (0, 1, 2)
BOUND = 1.01
NUM_POINTS = 10
"""Points of a curve."""
TOKENS = 2_048_000
MODEL = ModelConfig(num_layers=2, hidden_size=64, num_heads=4, sequence_length=64, window=32)
BATCH = 4
"""Sequences of a step with AdamW."""
EVALUATION = TrainConfig(
    model=MODEL, parallel=ParallelConfig(num_microbatches=1), data=DataConfig(microbatch_size=32), seed=1234
)
NUM_EVALUATED = 32
"""Batches of the evaluation, the same for all trainings."""
LEARNING_RATES = {"adamw": 6e-3, "lamb": 1e-2}
"""The best of 3e-3, 6e-3 and 12e-3 for AdamW, and of 1e-2 and 1.4e-2 for LAMB, with seed 0."""
Curve = list[tuple[int, float]]
"""Number of trained tokens, and loss."""


def config_of(optimizer: str, *, factor: int, seed: int, learning_rate: float, tokens: int = TOKENS) -> TrainConfig:
    """A training of ``tokens`` tokens with ``factor`` times the batch.

    The warm-up is longer in the same ratio (arXiv 1904.00962, section 4.3).
    """
    num_steps = tokens // (BATCH * factor * MODEL.sequence_length)
    warmup = num_steps * factor // 20
    return TrainConfig(
        recipe="lamb_batch",
        model=MODEL,
        parallel=ParallelConfig(num_microbatches=1),
        data=DataConfig(microbatch_size=BATCH * factor),
        optim=OptimConfig(
            optimizer=optimizer,  # type: ignore[arg-type]
            learning_rate=learning_rate,
            num_warmup_steps=warmup,
            num_decay_steps=num_steps - warmup,
        ),
        num_steps=num_steps,
        seed=seed,
    )


def curve_of(config: TrainConfig) -> Curve:
    """Train, and evaluate at ``NUM_POINTS`` evenly spaced steps, the last one included."""
    torch.set_num_threads(1)
    text = load_tokens(config.data, vocab_size=MODEL.vocab_size)
    cut = len(text) * 9 // 10
    batches = Batches(text[:cut], config, dp_index=0)
    unseen = Batches(text[cut:], EVALUATION, dp_index=0)
    stage = TransformerStage(MODEL, stage=0, num_stages=1)
    initialise(stage, MODEL, seed=config.seed)
    optimiser = make_optimiser([stage], config.optim)
    curve = []
    for step in range(config.num_steps):
        batch = batches.at(step)
        stage(batch.inputs, batch.targets).backward()
        optimiser.take_gradients()
        optimiser.clip(optimiser.square_sum().sqrt())
        optimiser.step(step)
        if (step + 1) % (config.num_steps // NUM_POINTS) == 0:
            curve.append(((step + 1) * config.tokens_per_step, _evaluated(stage, unseen)))
    return curve


@torch.no_grad()
def _evaluated(stage: TransformerStage, unseen: Batches) -> float:
    losses: list[Tensor] = [stage(*unseen.at(step)) for step in range(NUM_EVALUATED)]
    return float(torch.stack(losses).mean())


class LambBatch:
    """The final loss, each seed with both optimisers."""

    title = "Batch x4 with LAMB at equal tokens"
    command = "python -m tests.benchmarks.lamb_batch"

    def __init__(self, seeds: Sequence[int] = SEEDS, tokens: int = TOKENS) -> None:
        self._seeds = seeds
        self._tokens = tokens
        self.curves: dict[str, Curve] = {}

    def run(self) -> list[Figure]:
        figures = []
        for seed in self._seeds:
            last = {}
            for optimizer, factor in (("adamw", 1), ("lamb", 4)):
                rate = LEARNING_RATES[optimizer]
                config = config_of(optimizer, factor=factor, seed=seed, learning_rate=rate, tokens=self._tokens)
                curve = self.curves[f"{optimizer}, batch x{factor}, seed {seed}"] = curve_of(config)
                last[optimizer] = curve[-1][1]
            figures.append(
                Figure(
                    name=f"final loss of LAMB, batch x4, seed {seed}",
                    value=last["lamb"],
                    unit="nats",
                    rival="AdamW, batch x1",
                    rival_value=last["adamw"],
                    bound=BOUND * last["adamw"],
                )
            )
        return figures


def drawn(curves: dict[str, Curve]) -> str:
    """The curves as an SVG picture: AdamW in one colour, LAMB in another, a line for each seed."""
    points = np.array([point for curve in curves.values() for point in curve])
    (_, low), (right, high) = points.min(axis=0), points.max(axis=0)
    lines = "\n".join(_lines(curves, right, low, high))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">\n'
        f'<rect width="640" height="360" fill="white"/>\n{lines}\n</svg>\n'
    )


def _lines(curves: dict[str, Curve], right: float, low: float, high: float) -> Iterator[str]:
    colours = {"adamw": "#1f77b4", "lamb": "#d62728"}
    for name, curve in curves.items():
        places = " ".join(f"{60 + 560 * x / right:.1f},{320 - 290 * (y - low) / (high - low):.1f}" for x, y in curve)
        yield f'<polyline points="{places}" fill="none" stroke="{colours[name.partition(",")[0]]}" stroke-width="1.5"/>'
    for number, (name, colour) in enumerate(colours.items()):
        yield f'<text x="480" y="{40 + 18 * number}" fill="{colour}">{name}</text>'
    yield f'<text x="8" y="34">{high:.2f}</text><text x="8" y="324">{low:.2f}</text>'
    yield f'<text x="60" y="345">0</text><text x="540" y="345">{right / 1e6:.2f} M tokens</text>'
    yield '<text x="8" y="14">loss, nats</text>'


BENCHMARK = LambBatch()


def main() -> int:
    """Print the figures. The exit status is 1 if the bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--curves", type=Path, help="write the curves to this .svg or .json file")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each training")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="such as 0,1,2")
    options = parser.parse_args()
    benchmark = LambBatch([int(seed) for seed in options.seeds.split(",")], options.tokens)
    figures = benchmark.run()
    if options.curves is not None:
        as_json = options.curves.suffix == ".json"
        options.curves.write_text(json.dumps(benchmark.curves) if as_json else drawn(benchmark.curves))
    print(f"spread of the ratios: {statistics.pstdev([figure.ratio or 0 for figure in figures]):.4f}", file=sys.stderr)
    return report(benchmark.title, figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
